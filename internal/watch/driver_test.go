package watch

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// TestWakesDelayNoRound wakes the driver ten times in each pause.
func TestWakesDelayNoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = time.Millisecond
		p, stop, rounds := newTestPort(t, testConfig{ReadTimeout: time.Hour}), make(chan struct{}), 0
		var driving sync.WaitGroup
		driving.Go(func() { p.Drive(stop, pause, func() bool { rounds++; return true }) })
		for range 100 {
			p.Wake()
			time.Sleep(pause / 10)
		}
		close(stop)
		driving.Wait()
		require.InDelta(t, 10, rounds, 1)
	})
}

// newLagging returns the functions of a Watcher with ticks of 100 ms: its lag at an instant, and a
// round of its driver. The first round was in time.
func newLagging(t *testing.T) (lag func(at mono.Time, runs bool) time.Duration, round func(at mono.Time)) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Hour})
	require.Equal(t, 100*time.Millisecond, p.Clock.Tick())
	p.Resume()
	round = func(at mono.Time) {
		p.now = at
		p.Move(func(mono.Time) mono.Time { return 0 })
	}
	round(mono.Time(100 * time.Millisecond))
	return func(at mono.Time, runs bool) time.Duration {
		p.now = at
		return p.Stats(new(Counters), runs).ClockDelay
	}, round
}

func TestTheWorstDriverLagIsKeptForAWindow(t *testing.T) {
	const ( // untyped, for instants and durations
		ms = 1_000_000
		s  = 1000 * ms
	)
	lag, round := newLagging(t)
	require.Zero(t, lag(150*ms, true))
	require.Equal(t, 30*time.Millisecond, lag(230*ms, true), "the driver is late now")
	round(250 * ms)
	require.Equal(t, 50*time.Millisecond, lag(260*ms, true))
	for at := mono.Time(300 * ms); at < 30*s; at += 100 * ms { // always on time
		round(at)
		if at < mono.Time(lagWindow) {
			require.Equal(t, 50*time.Millisecond, lag(at, true), "%v", at)
		} else if at > mono.Time(2*lagWindow+s) {
			require.Zero(t, lag(at, true), "%v", at)
		}
	}
	require.Zero(t, lag(3600*s, false), "the driver does not run")
	require.NotZero(t, lag(3600*s, true))
}

// TestAStoppedDriverForgetsItsLag lets two windows pass without activity.
func TestAStoppedDriverForgetsItsLag(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct{ at, want time.Duration }{
		{lagWindow, 50 * ms},
		{lagWindow + 100*ms, 50 * ms}, // the next window begins
		{2*lagWindow + 100*ms - 1, 50 * ms},
		{2*lagWindow + 100*ms, 0},
		{time.Hour, 0},
	} {
		lag, round := newLagging(t)
		round(mono.Time(250 * ms))
		require.Equal(t, tc.want, lag(mono.Time(tc.at), false), "at %v", tc.at)
	}
}
