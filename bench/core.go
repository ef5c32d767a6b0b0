package main

import (
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// core is a [wheel.Wheel], which has no goroutine and no lock. Its caller passes the time.
type core struct {
	wheel   *wheel.Wheel[uint32]
	now     time.Duration
	handles []wheel.Handle
	expire  func(wheel.Handle, uint32)
}

func coreCandidate() candidate {
	return candidate{
		name: "wheel.Wheel", module: ourModule, new: newCore, driven: true,
		note: "One goroutine owns the core and passes the time. In the tables of one producer it gets the time and " +
			"advances once in 256 operations. For expiry by the real clock its goroutine sleeps until the next " +
			"deadline.",
	}
}

func newCore(c config) (subject, error) {
	w, err := wheel.New[uint32](tick)
	if err != nil {
		return nil, err
	}
	s := &core{wheel: w, handles: make([]wheel.Handle, c.n), expire: func(wheel.Handle, uint32) {}}
	if c.fire != nil {
		s.expire = func(_ wheel.Handle, i uint32) { c.fire(int(i)) }
	}
	return s, nil
}

func (s *core) at(now time.Duration) { s.now = now }
func (s *core) advance()             { s.wheel.Advance(s.now, math.MaxInt, s.expire) }

func (s *core) due() time.Duration {
	if due, ok := s.wheel.NextDue(); ok {
		return due
	}
	return math.MaxInt64
}

func (s *core) schedule(i int, d time.Duration) { s.handles[i] = s.wheel.Schedule(s.now+d, uint32(i)) }
func (s *core) cancel(i int)                    { s.wheel.Cancel(s.handles[i]) }
func (s *core) close()                          {}

func (s *core) reschedule(i int, d time.Duration) { s.wheel.Reschedule(s.handles[i], s.now+d) }
