package main

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/timer"
)

// ownTimer is a [timer.Timer] with a Timeout per index.
type ownTimer struct {
	config
	timers  *timer.Timer
	handles []*timer.Timeout
}

func newTimer(c config) (subject, error) {
	timers, err := timer.New(timer.Config{Tick: tick})
	return &ownTimer{config: c, timers: timers, handles: make([]*timer.Timeout, c.n)}, err
}

func (s *ownTimer) schedule(i int, d time.Duration) {
	s.handles[i] = must(s.timers.AfterFunc(d, s.callback(i)))
}
func (s *ownTimer) cancel(i int)                      { s.handles[i].Stop() }
func (s *ownTimer) reschedule(i int, d time.Duration) { s.handles[i].Reset(d) }
func (s *ownTimer) step()                             {}
func (s *ownTimer) close()                            { must(s.timers.Shutdown(context.Background())) }

// ownIdle is a [timer.Timer] with an Idle per index.
type ownIdle struct {
	config
	timers *timer.Timer
	idles  []*timer.Idle
}

func newIdle(c config) (subject, error) {
	timers, err := timer.New(timer.Config{Tick: tick})
	return &ownIdle{config: c, timers: timers, idles: make([]*timer.Idle, c.n)}, err
}

func (s *ownIdle) schedule(i int, d time.Duration) {
	s.idles[i] = must(s.timers.AfterIdle(d, s.callback(i)))
}
func (s *ownIdle) cancel(i int)                      { s.idles[i].Stop() }
func (s *ownIdle) reschedule(i int, _ time.Duration) { s.idles[i].Touch() }
func (s *ownIdle) step()                             {}
func (s *ownIdle) close()                            { must(s.timers.Shutdown(context.Background())) }

// must panics with an error, which a Timer returns only after Shutdown.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
