package main

import (
	"time"

	"github.com/zeromicro/go-zero/core/collection"
)

// goZero is go-zero's collection.TimingWheel: keys name the timers, and one goroutine behind
// channels owns them.
type goZero struct {
	wheel *collection.TimingWheel
}

func goZeroCandidate() candidate {
	return candidate{
		name: "go-zero TimingWheel", module: "github.com/zeromicro/go-zero", new: newGoZero,
		note: "Keys name the timers, here the index. A removed timer stays in memory until its slot comes up.",
	}
}

func newGoZero(c config) (subject, error) {
	w, err := collection.NewTimingWheel(tick, ringSlots, func(key, _ any) {
		if c.fire != nil {
			c.fire(key.(int))
		}
	})
	if err != nil {
		return nil, err
	}
	return &goZero{wheel: w}, nil
}

// The errors are for a delay that is not positive and for a closed wheel. Neither occurs here.

func (s *goZero) schedule(i int, d time.Duration)   { _ = s.wheel.SetTimer(i, nil, d) }
func (s *goZero) reschedule(i int, d time.Duration) { _ = s.wheel.MoveTimer(i, d) }
func (s *goZero) cancel(i int)                      { _ = s.wheel.RemoveTimer(i) }
func (s *goZero) close()                            { s.wheel.Stop() }
