package main

import (
	"time"

	"github.com/RussellLuo/timingwheel"
	antlabs "github.com/antlabs/timer"
)

// afterFunc is [time.AfterFunc].
type afterFunc struct {
	config
	timers []*time.Timer
}

func newAfterFunc(c config) (subject, error) {
	return &afterFunc{config: c, timers: make([]*time.Timer, c.n)}, nil
}

func (s *afterFunc) schedule(i int, d time.Duration)   { s.timers[i] = time.AfterFunc(d, s.callback(i)) }
func (s *afterFunc) cancel(i int)                      { s.timers[i].Stop() }
func (s *afterFunc) reschedule(i int, d time.Duration) { s.timers[i].Reset(d) }
func (s *afterFunc) step()                             {}

func (s *afterFunc) close() {
	for _, t := range s.timers {
		t.Stop()
	}
}

// russellLuo is github.com/RussellLuo/timingwheel.
type russellLuo struct {
	config
	wheel  *timingwheel.TimingWheel
	timers []*timingwheel.Timer
}

func newRussellLuo(c config) (subject, error) {
	s := &russellLuo{config: c, wheel: timingwheel.NewTimingWheel(tick, 512), timers: make([]*timingwheel.Timer, c.n)}
	s.wheel.Start()
	return s, nil
}

func (s *russellLuo) schedule(i int, d time.Duration) {
	s.timers[i] = s.wheel.AfterFunc(d, s.callback(i))
}
func (s *russellLuo) cancel(i int) { s.timers[i].Stop() }
func (s *russellLuo) step()        {}
func (s *russellLuo) close()       { s.wheel.Stop() }

func (s *russellLuo) reschedule(i int, d time.Duration) {
	s.cancel(i)
	s.schedule(i, d)
}

// antlabsTimer is github.com/antlabs/timer. Its tick is 10 ms.
type antlabsTimer struct {
	config
	timer antlabs.Timer
	nodes []antlabs.TimeNoder
}

func newAntlabs(c config) (subject, error) {
	s := &antlabsTimer{config: c, timer: antlabs.NewTimer(), nodes: make([]antlabs.TimeNoder, c.n)}
	go s.timer.Run()
	return s, nil
}

func (s *antlabsTimer) schedule(i int, d time.Duration) {
	s.nodes[i] = s.timer.AfterFunc(d, s.callback(i))
}
func (s *antlabsTimer) cancel(i int) { s.nodes[i].Stop() }
func (s *antlabsTimer) step()        {}
func (s *antlabsTimer) close()       { s.timer.Stop() }

func (s *antlabsTimer) reschedule(i int, d time.Duration) {
	s.cancel(i)
	s.schedule(i, d)
}
