package idle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newClock(tick, memory time.Duration) *clock {
	c := new(clock)
	c.init(tick, memory)
	return c
}

func moveTo(c *clock, at time.Duration) { c.move(func() time.Duration { return at }) }

func TestProcessStoppedInTheMiddleOfAMove(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	readings := []time.Duration{tick, time.Hour} // it is stopped between the two, and a byte is read before the stamp moves
	c.move(func() time.Duration {
		at := readings[0]
		readings = readings[1:]
		return at
	})
	require.Equal(t, time.Hour, c.before(0), "a byte with the old stamp may be as young as that")
}

func TestClockMovesOncePerTickAndOverGaps(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	for _, step := range []struct {
		elapsed, read time.Duration
		now           int64
	}{
		{0, 0, 0},
		{tick - 1, 0, 0},
		{tick, tick, 1},
		{tick + 5, tick, 1},
		{2*tick - 1, tick, 1},
		{2*tick + 3, 2*tick + 3, 2},
		{3 * tick, 3 * tick, 3}, // the multiple counts, not the distance
		{time.Hour + 7, time.Hour + 7, 4},
		{time.Minute, time.Hour + 7, 4}, // never back
	} {
		moveTo(c, step.elapsed)
		require.Equal(t, step.now, c.now.Load(), "after %v", step.elapsed)
		require.Equal(t, step.read, c.read(), "after %v", step.elapsed)
	}
}

func TestStampFromBeforeAGapIsBoundedByItsEnd(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, 100*tick)
	moveTo(c, tick)
	stamp := c.now.Load()
	require.Equal(t, 2*tick, c.before(stamp), "the next move is expected in a tick")
	moveTo(c, time.Hour) // the process was stopped; bytes that were read meanwhile have the old stamp
	require.Equal(t, time.Hour, c.before(stamp), "they may be as young as the end of the gap")
	require.Equal(t, tick, c.after(stamp))
	moveTo(c, time.Hour+tick)
	require.Equal(t, time.Hour, c.before(stamp))
	require.Equal(t, time.Hour+tick, c.before(stamp+1))
}

// TestClockBoundsEveryStamp compares the bounds with the truth, over moves that are late and gaps.
func TestClockBoundsEveryStamp(t *testing.T) {
	const tick, memory = 10 * time.Millisecond, 500 * time.Millisecond
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newClock(tick, memory)
	type event struct {
		at    time.Duration
		stamp uint32
	}
	var events []event
	elapsed := time.Duration(0)
	for range 50_000 {
		switch rng.IntN(20) {
		case 0:
			elapsed += time.Duration(rng.IntN(50)) * tick // a gap
		default:
			elapsed += time.Duration(rng.IntN(int(tick)))
		}
		if rng.IntN(3) > 0 {
			moveTo(c, elapsed)
		}
		events = append(events, event{elapsed, uint32(c.now.Load())})
		if len(events) > 200 {
			events = events[1:]
		}
		e := events[rng.IntN(len(events))]
		now := c.now.Load()
		stamp := unwrap(e.stamp, now)
		if before := c.before(stamp); before < e.at && stamp < now && elapsed-before < memory {
			t.Fatalf("seed %d: an event at %v is said to be before %v, %v ago", seed, e.at, before, elapsed-before)
		}
		if after := c.after(stamp); after > e.at && now-stamp < int64(len(*c.moves.Load()))-2 {
			t.Fatalf("seed %d: an event at %v is said to be after %v", seed, e.at, after)
		}
		if got := c.stamp(e.at); now-stamp < int64(len(*c.moves.Load()))-2 && got < stamp {
			t.Fatalf("seed %d: stamp of %v is %d, was %d", seed, e.at, got, stamp)
		}
	}
}

func TestForgottenStampIsOlderThanTheMemory(t *testing.T) {
	const tick, memory = 10 * time.Millisecond, time.Second
	c := newClock(tick, memory)
	for i := range 10_000 {
		moveTo(c, time.Duration(i)*tick)
	}
	require.GreaterOrEqual(t, c.read()-c.before(0), memory, "whoever was heard so long ago is idle")
}

func TestUnwrap(t *testing.T) {
	for _, now := range []int64{0, 1, 1<<32 - 1, 1 << 32, 1<<32 + 5, 3<<32 + 1} {
		for _, ago := range []int64{0, 1, 1000, 1<<32 - 1} {
			if stamp := now - ago; stamp >= 0 {
				require.Equal(t, stamp, unwrap(uint32(stamp), now), "%d before %d", ago, now)
			}
		}
	}
}
