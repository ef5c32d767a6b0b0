package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Drain closes all connections in the course of a time, so that their peers do not all come back elsewhere at once: those that are
// idle when it is their turn evenly over spread, and those that are active then, which is within a second, evenly over the rest up to
// the deadline. Those whose output waits in gnet's buffer go when it has gone, and they and those that Hold was called for at the
// deadline at last. Each gets its Goodbye. Exempt ones stay. Who comes from now on is refused, and ObserveOnly does not hold any more.
// Both are counted from now; spread may be 0 and must not be above the deadline.
//
// It returns at once: [Reaper.Connections] tells how many are left. It cannot be taken back, and a second call does nothing. Safe for
// concurrent use.
func (r *Reaper) Drain(spread, deadline time.Duration) error {
	if spread < 0 || deadline <= 0 || spread > deadline || deadline > maxTimeout {
		return fmt.Errorf("idle: drain with a spread of %v and a deadline of %v: they must not be negative, nor the first above the second",
			spread, deadline)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.settings.Load()
	if now := old.now; now.drain == (verdict.Drain{}) {
		now.drain = verdict.Drain{Began: max(r.clock.Elapsed(), 1), Spread: spread, Deadline: deadline}
		r.settings.Store(old.next(old.cfg, now, r.clock.Elapsed()))
		r.continueSoon()
	}
	return nil
}
