package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"
)

// russellLuoSlots is the size of each level: 5.12 s, then 44 minutes.
const russellLuoSlots = 512

// russellLuo is RussellLuo/timingwheel, hierarchical wheels after Kafka's.
type russellLuo struct {
	config
	wheel  *timingwheel.TimingWheel
	timers []*timingwheel.Timer
}

func russellLuoCandidate() candidate {
	return candidate{
		name: "RussellLuo/timingwheel", module: "github.com/RussellLuo/timingwheel", new: newRussellLuo,
		note:  "Levels of 512 slots. Reads the wall clock in milliseconds and rounds down to a tick.",
		moves: "No reschedule: Stop and AfterFunc.",
	}
}

func newRussellLuo(c config) (subject, error) {
	s := &russellLuo{
		config: c,
		wheel:  timingwheel.NewTimingWheel(tick, russellLuoSlots),
		timers: make([]*timingwheel.Timer, c.n),
	}
	s.wheel.Start()
	return s, nil
}

func (s *russellLuo) schedule(i int, d time.Duration) {
	s.timers[i] = s.wheel.AfterFunc(d, s.callback(i))
}
func (s *russellLuo) cancel(i int) { s.timers[i].Stop() }
func (s *russellLuo) close()       { s.wheel.Stop() }

func (s *russellLuo) reschedule(i int, d time.Duration) {
	s.cancel(i)
	s.schedule(i, d)
}
