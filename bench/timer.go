package main

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/timer"
)

// newTimer makes a [timer.Timer] with a Timeout per index, or with an Idle if it is touched.
func newTimer(c config) (subject, error) {
	timers, err := timer.New(timer.Config{Tick: tick})
	s := subject{step: nothing, close: func() { must(timers.Shutdown(context.Background())) }}
	if c.timeout > 0 {
		idles := make([]*timer.Idle, c.n)
		s.schedule = func(i int, d time.Duration) { idles[i] = must(timers.AfterIdle(d, c.callback(i))) }
		s.cancel = func(i int) { idles[i].Stop() }
		s.reschedule = func(i int, _ time.Duration) { idles[i].Touch() }
		return s, err
	}
	timeouts := make([]*timer.Timeout, c.n)
	s.schedule = func(i int, d time.Duration) { timeouts[i] = must(timers.AfterFunc(d, c.callback(i))) }
	s.cancel = func(i int) { timeouts[i].Stop() }
	s.reschedule = func(i int, d time.Duration) { timeouts[i].Reset(d) }
	return s, err
}

// must panics with an error, which a Timer returns only after Shutdown.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
