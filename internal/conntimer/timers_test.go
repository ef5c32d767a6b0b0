package conntimer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// These constants are untyped, for instants and durations.
const (
	tick = 10_000_000
	hour = 360_000 * tick
)

// advance calls all functions that are due.
func advance(t *Timers[string], now mono.Time) {
	for t.Advance(now) {
	}
}

func TestAFunctionIsCalledOnce(t *testing.T) {
	timers, calls := New[string](tick), 0
	one := timers.Add("a", 5*tick/2, 0, func() { calls++ })
	advance(timers, 5*tick/2-1)
	require.Zero(t, calls)
	advance(timers, 3*tick)
	require.Equal(t, 1, calls)
	require.False(t, timers.Stop(one), "it was called")
	advance(timers, hour)
	require.Equal(t, 1, calls)
	require.Zero(t, timers.Len())
	require.Empty(t, timers.first)
}

func TestAFunctionIsCalledAgainAndAgain(t *testing.T) {
	timers := New[string](tick)
	var calls []mono.Time
	now := mono.Time(0)
	one := timers.Add("a", tick, 3*tick, func() { calls = append(calls, now) })
	for ; now <= 10*tick; now += tick {
		advance(timers, now)
	}
	require.Equal(t, []mono.Time{tick, 4 * tick, 7 * tick, 10 * tick}, calls)
	now = 100 * tick // 29 calls are late
	advance(timers, now)
	require.Len(t, calls, 5, "one call makes up for all")
	for now = 101 * tick; now <= 106*tick; now += tick {
		advance(timers, now)
	}
	require.Equal(t, []mono.Time{100 * tick, 103 * tick, 106 * tick}, calls[4:], "on the grid of before")
	require.True(t, timers.Stop(one))
	require.False(t, timers.Stop(one))
	require.Zero(t, timers.Len())
}

func TestTheTimersOfAClosedConnectionAreDropped(t *testing.T) {
	timers, calls := New[string](tick), ""
	add := func(conn, name string, every time.Duration) *Timer[string] {
		return timers.Add(conn, tick, every, func() { calls += name })
	}
	first := add("a", "1", 0)
	add("a", "2", tick)
	add("b", "3", 0)
	timers.Drop("c")
	timers.Drop("a")
	require.False(t, timers.Stop(first))
	advance(timers, hour)
	require.Equal(t, "3", calls)
	require.Empty(t, timers.first)
}

func TestAFunctionMayStopAndDropTimers(t *testing.T) {
	timers, calls := New[string](tick), 0
	var self *Timer[string]
	self = timers.Add("a", tick, tick, func() {
		if calls++; calls == 2 {
			require.True(t, timers.Stop(self))
			require.False(t, timers.Stop(self))
		}
	})
	timers.Add("b", tick, tick, func() { timers.Drop("b") })
	timers.Add("c", tick, 0, func() { timers.Add("c", 5*tick, 0, func() { calls += 10 }) })
	for now := mono.Time(0); now < 20*tick; now += tick {
		advance(timers, now)
	}
	require.Equal(t, 12, calls)
	require.Zero(t, timers.Len())
	require.Empty(t, timers.first)
}

func TestTimersAreRemovedInAnyOrder(t *testing.T) {
	timers := New[string](tick)
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		calls := 0
		var all []*Timer[string]
		for range 3 {
			all = append(all, timers.Add("a", tick, tick, func() { calls++ }))
		}
		for i, n := range order {
			require.True(t, timers.Stop(all[n]))
			require.False(t, timers.Stop(all[n]))
			require.Equal(t, 2-i, timers.Len())
		}
		require.Empty(t, timers.first)
	}
	timers.Add("a", tick, 0, func() {})
	timers.Stop(timers.Add("a", tick, 0, func() {}))
	timers.Drop("a")
	require.Zero(t, timers.Len())
}

func TestAFunctionThatPanicsIsNotLost(t *testing.T) {
	timers := New[string](tick)
	timers.Add("a", tick, 0, func() { panic("test") })
	timers.Add("a", tick, tick, func() { panic("test") })
	require.Panics(t, func() { advance(timers, tick) })
	require.Panics(t, func() { advance(timers, tick) })
	require.Equal(t, 1, timers.Len(), "the repeated one goes on")
	timers.Drop("a")
	require.Zero(t, timers.Len())
}
