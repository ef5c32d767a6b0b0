package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

func TestTheWorstDriverLagIsKeptForAWindow(t *testing.T) {
	const ( // untyped, for instants and durations
		ms   = 1_000_000
		s    = 1000 * ms
		hour = 3600 * s
	)
	var l lag
	l.due = 100 * ms
	l.ran(100*ms, 100*ms)
	require.Zero(t, l.worst(150*ms, true))
	require.Equal(t, 30*time.Millisecond, l.worst(230*ms, true), "the driver is late now")
	l.ran(250*ms, 50*ms)
	require.Equal(t, 50*time.Millisecond, l.worst(260*ms, true))
	for at := mono.Time(300 * ms); at < 30*s; at += 100 * ms { // always on time
		l.ran(at, 100*ms)
		if at < mono.Time(lagWindow) {
			require.Equal(t, 50*time.Millisecond, l.worst(at, true), "%v", at)
		} else if at > mono.Time(2*lagWindow+s) {
			require.Zero(t, l.worst(at, true), "%v", at)
		}
	}
	require.Zero(t, l.worst(hour, false), "the driver does not run")
	l.due = hour + 100*ms
	require.Zero(t, l.worst(hour+50*ms, true))
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
		var l lag
		l.due = mono.Time(100 * ms)
		l.ran(mono.Time(100*ms), 100*ms) // begins the first window
		l.ran(mono.Time(250*ms), 50*ms)
		require.Equal(t, tc.want, l.worst(mono.Time(tc.at), false), "at %v", tc.at)
	}
}
