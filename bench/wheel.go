package main

import (
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// ownWheel is a [wheel.Wheel], which reads no clock.
type ownWheel struct {
	wheel   *wheel.Wheel[uint32]
	origin  time.Time
	now     time.Duration // since the origin
	handles []wheel.Handle
	expire  func(wheel.Handle, uint32)
}

func makeWheel(c config) (*ownWheel, error) {
	w, err := wheel.New[uint32](tick)
	return &ownWheel{
		wheel: w, origin: time.Now(), handles: make([]wheel.Handle, c.n),
		expire: func(_ wheel.Handle, i uint32) { c.callback(int(i))() },
	}, err
}

func newWheel(c config) (subject, error) { return makeWheel(c) }

func (s *ownWheel) schedule(i int, d time.Duration) {
	s.handles[i] = s.wheel.Schedule(s.now+d, uint32(i))
}

func (s *ownWheel) cancel(i int)                      { s.wheel.Cancel(s.handles[i]) }
func (s *ownWheel) reschedule(i int, d time.Duration) { s.wheel.Reschedule(s.handles[i], s.now+d) }
func (s *ownWheel) close()                            {}

func (s *ownWheel) step() {
	s.now = time.Since(s.origin)
	s.wheel.Advance(s.now, math.MaxInt, s.expire)
}

// touchedWheel is lazy: a touch stores the time.
type touchedWheel struct {
	*ownWheel
	heard []time.Duration // 0: never
}

func newTouchedWheel(c config) (subject, error) {
	w, err := makeWheel(c)
	s := &touchedWheel{ownWheel: w, heard: make([]time.Duration, c.n)}
	w.expire = func(h wheel.Handle, i uint32) {
		if heard := s.heard[i]; heard > 0 && heard+c.timeout > w.now {
			w.wheel.Reschedule(h, heard+c.timeout)
			return
		}
		c.callback(int(i))()
	}
	return s, err
}

func (s *touchedWheel) reschedule(i int, _ time.Duration) { s.heard[i] = s.now }
