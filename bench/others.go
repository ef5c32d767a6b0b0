package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"
)

func newAfterFunc(c config) (subject, error) {
	timers := make([]*time.Timer, c.n)
	return subject{
		schedule:   func(i int, d time.Duration) { timers[i] = time.AfterFunc(d, c.callback(i)) },
		cancel:     func(i int) { timers[i].Stop() },
		reschedule: func(i int, d time.Duration) { timers[i].Reset(d) },
		step:       nothing,
		close: func() {
			for _, t := range timers {
				t.Stop()
			}
		},
	}, nil
}

func newRussellLuo(c config) (subject, error) {
	wheel, timers := timingwheel.NewTimingWheel(tick, 512), make([]*timingwheel.Timer, c.n)
	wheel.Start()
	return subject{
		schedule: func(i int, d time.Duration) { timers[i] = wheel.AfterFunc(d, c.callback(i)) },
		cancel:   func(i int) { timers[i].Stop() },
		reschedule: func(i int, d time.Duration) {
			timers[i].Stop()
			timers[i] = wheel.AfterFunc(d, c.callback(i))
		},
		step:  nothing,
		close: wheel.Stop,
	}, nil
}

// newAntlabs has a tick of 10 ms, too.
func newAntlabs(c config) (subject, error) {
	timer, nodes := antlabs.NewTimer(), make([]antlabs.TimeNoder, c.n)
	go timer.Run()
	return subject{
		schedule: func(i int, d time.Duration) { nodes[i] = timer.AfterFunc(d, c.callback(i)) },
		cancel:   func(i int) { nodes[i].Stop() },
		reschedule: func(i int, d time.Duration) {
			nodes[i].Stop()
			nodes[i] = timer.AfterFunc(d, c.callback(i))
		},
		step:  nothing,
		close: timer.Stop,
	}, nil
}
