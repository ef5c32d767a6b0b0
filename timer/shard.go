package timer

import (
	"fmt"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// A shard has a part of the Timeouts, so that goroutines rarely wait for each other. Its methods
// are called with mu.
type shard struct {
	core  *core // immutable
	mu    sync.Mutex
	wheel *wheel.Wheel[*Timeout] // guarded by mu; the filed Timeouts
	idles *wheel.Wheel[*Idle]    // guarded by mu; nil before the first one

	active []*Timeout // guarded by mu; the submitted and running Timeouts, each at its index
	stats  Stats      // guarded by mu

	_ [64]byte // so that the locks of two shards lie in different cache lines
}

// arm makes a Timeout pending that is not.
func (s *shard) arm(t *Timeout) error {
	if s.core.closed {
		return ErrShutdown
	}
	if !s.core.addPending(1) {
		return fmt.Errorf("%w: %d", ErrTooManyPending, s.core.cfg.MaxPending)
	}
	t.armed = true
	s.stats.Pending++
	s.stats.Scheduled++
	return nil
}

// disarm ends the pending state of a Timeout.
func (s *shard) disarm(t *Timeout) {
	t.armed = false
	s.stats.Pending--
	s.core.addPending(-1)
}

// stop disarms a pending Timeout and takes it out of the wheel.
func (s *shard) stop(t *Timeout) {
	s.disarm(t)
	s.stats.Stopped++
	if t.place == filed {
		s.wheel.Cancel(t.handle)
		t.place = none
	}
}

// file puts an armed Timeout that is at no place into the wheel.
func (s *shard) file(t *Timeout, at time.Duration) {
	t.place = filed
	t.handle = s.wheel.Schedule(at, t)
	s.core.wakeBy(at)
}

// submit moves a Timeout from the wheel to the active ones.
func (s *shard) submit(t *Timeout) {
	t.place = submitted
	t.index = uint32(len(s.active))
	s.active = append(s.active, t)
}

// retire moves a Timeout from the active ones to no place.
func (s *shard) retire(t *Timeout) {
	t.place = none
	end := len(s.active) - 1
	last := s.active[end]
	s.active[t.index], last.index = last, t.index
	s.active[end] = nil
	s.active = s.active[:end]
}

// addPending adds n to the number of pending Timeouts, unless that exceeds the limit.
func (c *core) addPending(n int) bool {
	if c.cfg.MaxPending == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending+n > c.cfg.MaxPending {
		return false
	}
	c.pending += n
	return true
}
