package main

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/timer"
)

// ours is a [timer.Timer].
type ours struct {
	config
	timers  *timer.Timer
	handles []*timer.Timeout
}

func oursCandidate() candidate {
	return candidate{name: "timer.Timer", module: ourModule, new: newOurs}
}

func newOurs(c config) (subject, error) {
	timers, err := timer.New(timer.Config{Tick: tick})
	if err != nil {
		return nil, err
	}
	return &ours{config: c, timers: timers, handles: make([]*timer.Timeout, c.n)}, nil
}

func (s *ours) schedule(i int, d time.Duration) {
	h, err := s.timers.AfterFunc(d, s.callback(i))
	if err != nil {
		panic(err) // only after Shutdown
	}
	s.handles[i] = h
}

func (s *ours) cancel(i int)                      { s.handles[i].Stop() }
func (s *ours) reschedule(i int, d time.Duration) { s.handles[i].Reset(d) }
func (s *ours) close()                            { _, _ = s.timers.Shutdown(context.Background()) }
