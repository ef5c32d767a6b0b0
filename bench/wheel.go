package main

import (
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// newWheel makes a [wheel.Wheel], which reads no clock. If it is touched, it is lazy: a touch
// stores the time.
func newWheel(c config) (subject, error) {
	w, err := wheel.New[uint32](tick)
	origin := time.Now()
	var now time.Duration // since the origin
	handles := make([]wheel.Handle, c.n)
	expire := func(_ wheel.Handle, i uint32) { c.callback(int(i))() }
	s := subject{
		schedule:   func(i int, d time.Duration) { handles[i] = w.Schedule(now+d, uint32(i)) },
		cancel:     func(i int) { w.Cancel(handles[i]) },
		reschedule: func(i int, d time.Duration) { w.Reschedule(handles[i], now+d) },
		step: func() {
			now = time.Since(origin)
			w.Advance(now, math.MaxInt, expire)
		},
		close: nothing,
	}
	if c.timeout > 0 {
		heard := make([]time.Duration, c.n) // 0: never
		s.reschedule = func(i int, _ time.Duration) { heard[i] = now }
		expire = func(h wheel.Handle, i uint32) {
			if end := heard[i] + c.timeout; heard[i] > 0 && end > now {
				w.Reschedule(h, end)
				return
			}
			c.callback(int(i))()
		}
	}
	return s, err
}
