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
	p := newTestPort(t, testConfig{ReadTimeout: 5 * time.Second, ObserveOnly: true})
	for range inspectStep + 1 {
		p.open()
	}
	p.pass(10 * time.Second)
	p.answer = verdict.Evidence{Dated: true, Silent: 2 * time.Second, Quiet: 3 * time.Second, Queued: 4, Received: 5, Acked: 6}
	i, err := p.NewInspector(reap.Query{Limit: 1, States: true})
	require.NoError(t, err)
	p.Ends.Add(1, false, p.NewError(reap.Kicked)) // it is not closed yet
	for next, more := uint32(0), true; more; {
		next, more = p.Inspect(next, i)
	}
	require.Equal(t, inspectStep+1, i.Result().States["observed"])
	got := i.Result().Connections[0]
	got.Due = 0
	require.Equal(t, reap.ConnInfo{ID: "1-0-1", Age: 9975 * time.Millisecond, ReadIdle: 2 * time.Second, WriteIdle: 3 * time.Second,
		Received: 5, Sent: 6, Output: 4, State: "observed"}, got)
}

func TestARingCountsDistantDeadlines(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: time.Minute})
	p.Schedule.wheel.Schedule(p.Clock.Tick(), 1)
	p.Schedule.wheel.Schedule(100*time.Hour, 2)
	p.Schedule.wheel.Schedule(30*24*time.Hour, 3)
	ring := p.Ring(4)
	require.Equal(t, []int{1, 0, 0, 0}, ring.Sectors)
	require.Equal(t, 2, ring.Later)
}

// TestATurnOfARingDoesNotOverlapTheNext has deadlines that are exactly one turn away.
func TestATurnOfARingDoesNotOverlapTheNext(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond})
	turn := p.Ring(10).Turn
	for id, due := range []time.Duration{turn - p.Clock.Tick(), turn, turn + p.Clock.Tick()} {
		p.Schedule.wheel.Schedule(due, uint32(id))
	}
	ring := p.Ring(10)
	require.Zero(t, ring.Now)
	require.Equal(t, turn, ring.Turn)
	want := make([]int, len(ring.Sectors))
	want[len(want)-1] = 1
	require.Equal(t, want, ring.Sectors, "a deadline after a turn is not in the current sector")
	require.Equal(t, 2, ring.Later)
}

// TestATurnOfARingHasRoomForRounding has a deadline that the clock and the wheel have rounded up.
func TestATurnOfARingHasRoomForRounding(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond})
	p.Schedule.wheel.Schedule(10*time.Second+p.Clock.Tick(), 1)
	require.Zero(t, p.Ring(1000).Later)
}

func TestATurnOfARingHasRoomForJitter(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 10 * time.Second, Tick: 100 * time.Millisecond})
	cfg := p.Settings().Config
	cfg.Limits.Jitter = 0.5
	p.Follow(p.Settings().next(cfg, overlay{}, 0))
	p.Schedule.wheel.Schedule(15*time.Second, 1)
	ring := p.Ring(30)
	require.GreaterOrEqual(t, ring.Turn, 15*time.Second)
	require.Less(t, ring.Turn, 17*time.Second)
	require.Zero(t, ring.Later, "a turn has room for the timeout of 10 s and a jitter of one half")
}
