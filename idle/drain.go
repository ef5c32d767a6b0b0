package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Drain closes all connections bit by bit, so that their peers do not all come back elsewhere at the
// same moment. Idle connections are closed evenly over spread. A connection that was active within the
// last second when it is its turn is closed evenly over the rest of the time to the deadline. A
// connection whose output waits in gnet's buffer is closed when the buffer is empty, and a connection
// that Hold was called for when it is released, both at the deadline at the latest. Each gets its
// Goodbye. Exempt connections stay. From now on new connections are refused, and ObserveOnly is off.
//
// Both times count from now; spread may be 0 and must not be longer than deadline, which is at most
// ten years: otherwise Drain returns an error. It returns at once: [Reaper.Connections] tells how many
// are left. A drain cannot be taken back. Another call with a sooner deadline replaces the first one; a
// later deadline changes nothing. Safe for concurrent use.
func (r *Reaper) Drain(spread, deadline time.Duration) error {
	if spread < 0 || deadline <= 0 || spread > deadline || deadline > maxTimeout {
		return fmt.Errorf("idle: drain with a spread of %v and a deadline of %v: they must not be negative, nor the first above the second",
			spread, deadline)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.settings.Load()
	began := max(r.clock.Elapsed(), 1)
	if now := old.now; now.drain == (verdict.Drain{}) || began+deadline < now.drain.Began+now.drain.Deadline {
		now.drain = verdict.Drain{Began: began, Spread: spread, Deadline: deadline}
		r.settings.Store(old.next(old.cfg, now, r.clock.Elapsed()))
		r.continueSoon()
	}
	return nil
}
