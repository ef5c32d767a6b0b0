package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAnInspectionShowsWhatTheKernelKnows has bytes that no handler has read.
func TestAnInspectionShowsWhatTheKernelKnows(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 5 * time.Second, ObserveOnly: true, KeepClosed: 1})
	for range inspectStep + 1 {
		p.open()
	}
	p.pass(10 * time.Second)
	p.answer = verdict.Evidence{Dated: true, Silent: 2 * time.Second, Quiet: 3 * time.Second, Queued: 4, Received: 5, Acked: 6}
	i, err := p.NewInspector(reap.Query{Limit: 1, States: true})
	require.NoError(t, err)
	p.Watcher.Closed.Add(reap.Closed{}, 1)
	p.Ends.Add(1, false, p.NewError(reap.Kicked)) // it is not closed yet
	for next, more := uint32(0), true; more; {
		next, more = p.Inspect(next, i)
	}
	require.Equal(t, inspectStep+1, i.Result().States["observed"])
	got := i.Result().Connections[0]
	got.Due = 0
	require.Regexp(t, `^1-0-\d+$`, got.ID)
	got.ID = ""
	require.Equal(t, reap.ConnInfo{Age: 9975 * time.Millisecond, ReadIdle: 2 * time.Second, WriteIdle: 3 * time.Second,
		Received: 5, Sent: 6, Output: 4, State: "observed"}, got)
	require.Zero(t, i.Result().Silences, "not asked for")
	require.Empty(t, i.Result().Closed)
	p.answer.Silent, p.answer.Step = 9900*time.Millisecond, 100*time.Millisecond
	peer, both, _ := p.Silence(0, p.At(0))
	require.Equal(t, 9800*time.Millisecond, peer, "at least so long")
	require.Equal(t, 2900*time.Millisecond, both)
	p.gone = true
	peer, _, _ = p.Silence(0, p.At(0))
	require.Zero(t, peer, "it has ended")
}

// TestAnInspectionForgetsWhatTheLastLookFound has a peer that has answered and taken its output
// since the last look at it.
func TestAnInspectionForgetsWhatTheLastLookFound(t *testing.T) {
	p := newAskingPort(t, testConfig{ReadTimeout: time.Minute, WriteStallTimeout: 8 * time.Second})
	cfg := p.Settings().Config
	cfg.Limits.Heartbeat = verdict.Heartbeat{Interval: time.Second, Retry: time.Second, MaxMissed: 9}
	p.Follow(p.Settings().next(cfg, overlay{}, 0))
	p.open()
	p.peer = func(*testConn) verdict.Evidence {
		return verdict.Evidence{Dated: true, Silent: p.now.Sub(0), Quiet: p.now.Sub(0), Queued: 1}
	}
	p.pass(5 * time.Second)
	inspect := func() reap.ConnInfo {
		i, err := p.NewInspector(reap.Query{Limit: 1})
		require.NoError(t, err)
		p.Inspect(0, i)
		return i.Result().Connections[0]
	}
	before := inspect()
	require.Equal(t, "stalled", before.State)
	require.NotZero(t, before.Missed)
	p.peer = func(*testConn) verdict.Evidence {
		return verdict.Evidence{Queued: -1}
	}
	require.Equal(t, "stalled", inspect().State, "the kernel does not know")
	require.NotZero(t, inspect().ReadIdle)
	unlimited := cfg
	unlimited.Limits.Stall = 0
	p.Follow(p.Set.next(unlimited, overlay{}, 0))
	require.Equal(t, "open", inspect().State, "the limit is off")
	p.Follow(p.Set.next(cfg, overlay{}, 0))
	p.peer = func(*testConn) verdict.Evidence {
		return verdict.Evidence{Dated: true, Silent: time.Millisecond, Received: 1}
	}
	p.asks = false
	require.NotZero(t, inspect().Missed, "a byte may be no pong")
	p.asks = true
	after := inspect()
	require.Equal(t, "open", after.State)
	require.Zero(t, after.Missed)
}

// TestATurnOfARing has rings with a sector per tick. A turn has room for the timeout, for jitter,
// and for two ticks, because the clock and the wheel round up.
func TestATurnOfARing(t *testing.T) {
	const timeout, tick = 10 * time.Second, 100 * time.Millisecond
	for _, tc := range []struct {
		jitter        float64
		turn          time.Duration
		due           []time.Duration
		sector, later int
	}{
		{0, timeout + 2*tick, []time.Duration{tick, 100 * time.Hour, 30 * 24 * time.Hour}, 1, 2},
		{0, timeout + 2*tick, []time.Duration{timeout + tick, timeout + 2*tick, timeout + 3*tick}, 101, 2},
		{0.5, timeout*3/2 + 2*tick, []time.Duration{timeout * 3 / 2}, 150, 0},
	} {
		p := newTestPort(t, testConfig{ReadTimeout: timeout, Tick: tick})
		cfg := p.Settings().Config
		cfg.Limits.Jitter = tc.jitter
		p.Follow(p.Settings().next(cfg, overlay{}, 0))
		for id, due := range tc.due {
			p.Schedule.wheel.Schedule(due, uint32(id))
		}
		ring := p.Ring(1000)
		require.Equal(t, tc.turn, ring.Turn)
		want := make([]int, tc.turn/tick)
		want[tc.sector] = 1
		require.Equal(t, want, ring.Sectors, "%v", tc.due)
		require.Equal(t, tc.later, ring.Later, "%v", tc.due)
		require.Zero(t, ring.Now)
		require.Len(t, p.Ring(4).Sectors, 4)
	}
}
