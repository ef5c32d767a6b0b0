package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
