package coarse

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A testClock is a Clock with a real time that the test sets.
type testClock struct {
	Clock
	time time.Duration
}

func newClock(tick, memory time.Duration) *testClock {
	c := &testClock{}
	c.Init(tick, memory, func() time.Duration { return c.time })
	return c
}

func moveTo(c *testClock, at time.Duration) {
	c.time = at
	c.Move()
}

func TestProcessStoppedInTheMiddleOfAMove(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	// The process is stopped between the two readings, and a byte is read before the stamp moves.
	readings := []time.Duration{tick, time.Hour}
	c.elapsed = func() time.Duration {
		at := readings[0]
		readings = readings[1:]
		if len(readings) == 0 {
			require.Equal(t, 2*time.Hour, c.Before(0, 2*time.Hour), "only now bounds the stamp meanwhile")
		}
		return at
	}
	c.Move()
	require.Equal(t, time.Hour, c.Before(0, 2*time.Hour), "a byte with the old stamp may be that recent")
}

func TestClockMovesOncePerTickAndOverGaps(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	for _, step := range []struct {
		elapsed, read time.Duration
		now           Stamp
	}{
		{0, 0, 0},
		{tick - 1, 0, 0},
		{tick, tick, 1},
		{tick + 5, tick, 1},
		{2*tick - 1, tick, 1},
		{2*tick + 3, 2*tick + 3, 2},
		{3 * tick, 3 * tick, 3}, // the multiple counts, not the distance
		{time.Hour + 7, time.Hour + 7, 4},
		{time.Minute, time.Hour + 7, 4}, // the clock never moves back
	} {
		moveTo(c, step.elapsed)
		require.Equal(t, step.now, c.Stamp(), "after %v", step.elapsed)
		require.Equal(t, step.read, c.Read(), "after %v", step.elapsed)
	}
}

func TestStampFromBeforeAGapIsBoundedByItsEnd(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, 100*tick)
	moveTo(c, tick)
	stamp := c.Stamp()
	require.Equal(t, 90*tick, c.Before(stamp, 90*tick), "the next move may be late: the only bound is now")
	moveTo(c, time.Hour) // the process was stopped; bytes read meanwhile have the old stamp
	require.Equal(t, time.Hour, c.Before(stamp, 2*time.Hour), "a byte may have come at the end of the gap")
	require.Equal(t, tick, c.After(stamp))
	moveTo(c, time.Hour+tick)
	require.Equal(t, time.Hour, c.Before(stamp, 2*time.Hour))
	require.Equal(t, time.Hour+tick, c.Before(stamp+1, 2*time.Hour))
}

// TestClockBoundsEveryStamp compares the bounds with the true times, with late moves and gaps.
func TestClockBoundsEveryStamp(t *testing.T) {
	const tick, memory = 10 * time.Millisecond, 500 * time.Millisecond
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newClock(tick, memory)
	type event struct {
		at    time.Duration
		stamp ShortStamp
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
		events = append(events, event{elapsed, c.Stamp().Short()})
		if len(events) > 200 {
			events = events[1:]
		}
		e := events[rng.IntN(len(events))]
		now := c.Stamp()
		stamp := e.stamp.Unwrap(now)
		if before := c.Before(stamp, elapsed); before < e.at && elapsed-before < memory {
			t.Fatalf("seed %d: an event at %v is said to be before %v, %v ago", seed, e.at, before, elapsed-before)
		}
		if after := c.After(stamp); after > e.at && now-stamp < Stamp(len(*c.moves.Load()))-2 {
			t.Fatalf("seed %d: an event at %v is said to be after %v", seed, e.at, after)
		}
		if got := c.StampAt(e.at); now-stamp < Stamp(len(*c.moves.Load()))-2 && got < stamp {
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
	require.GreaterOrEqual(t, c.Read()-c.Before(0, 2*time.Hour), memory, "a connection that was heard that long ago is idle")
}

func TestUnwrap(t *testing.T) {
	for _, now := range []Stamp{0, 1, 1<<32 - 1, 1 << 32, 1<<32 + 5, 3<<32 + 1} {
		for _, ago := range []Stamp{0, 1, 1000, 1<<32 - 1} {
			if stamp := now - ago; stamp >= 0 {
				require.Equal(t, stamp, stamp.Short().Unwrap(now), "%d before %d", ago, now)
			}
		}
	}
}

func TestMoveReturnsTheTimesOfTheLastMoveAndOfThisOne(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	for _, step := range []struct{ elapsed, from, to time.Duration }{
		{tick - 1, 0, 0}, // the clock does not move
		{tick + 1, 0, tick + 1},
		{2*tick - 1, tick + 1, tick + 1},
		{2 * tick, tick + 1, 2 * tick},
		{time.Hour, 2 * tick, time.Hour}, // the process was stopped
		{time.Minute, time.Hour, time.Hour},
	} {
		c.time = step.elapsed
		from, to := c.Move()
		require.Equal(t, step.from, from, "at %v", step.elapsed)
		require.Equal(t, step.to, to, "at %v", step.elapsed)
		require.Equal(t, to, c.Read())
	}
	// The process is stopped in the middle of a move.
	readings := []time.Duration{time.Hour + tick, time.Hour + 50*tick}
	c.elapsed = func() time.Duration {
		at := readings[0]
		readings = readings[min(1, len(readings)-1):]
		return at
	}
	from, to := c.Move()
	require.Equal(t, time.Hour, from)
	require.Equal(t, time.Hour+50*tick, to, "the gap ends when the events get the new stamp")
}

// TestNothingBoundsAStampWhileTheClockMoves reads bounds in the middle of a move, before its time
// is known.
func TestNothingBoundsAStampWhileTheClockMoves(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	moveTo(c, tick)
	readings := 0
	c.elapsed = func() time.Duration {
		if readings++; readings == 2 {
			require.EqualValues(t, 2, c.Stamp(), "the number has moved")
			require.Equal(t, 5*tick, c.Before(2, 5*tick))
			require.Equal(t, 5*tick, c.Before(1, 5*tick), "an event may just have got the old number")
			require.Equal(t, tick, c.Before(0, 5*tick), "the last move bounds the stamp before it")
			require.Equal(t, 2*tick, c.Before(2, tick), "the reading is older than the move")
		}
		return 2 * tick
	}
	c.Move()
	require.Equal(t, 2, readings)
	require.Equal(t, 2*tick, c.Before(1, 5*tick))
	require.Equal(t, 5*tick, c.Before(2, 5*tick))
}

func TestRememberKeepsKnownMoves(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, 10*tick)
	for i := range 100 {
		moveTo(c, time.Duration(i)*tick+time.Duration(i))
	}
	require.Equal(t, 10*tick, c.Memory())
	known := c.oldest(c.Stamp())
	c.Remember(5 * tick)
	require.Equal(t, 10*tick, c.Memory(), "the memory never shrinks")
	c.Remember(50 * tick)
	require.Equal(t, 50*tick, c.Memory())
	for stamp := known; stamp < c.Stamp(); stamp++ {
		require.True(t, c.Remembers(stamp))
		require.Equal(t, time.Duration(stamp)*(tick+1), c.After(stamp))
		require.Equal(t, time.Duration(stamp+1)*(tick+1), c.Before(stamp, time.Hour))
	}
	require.False(t, c.Remembers(known-1), "a forgotten move stays forgotten")
	for i := range 40 {
		moveTo(c, time.Duration(100+i)*tick+time.Duration(100+i))
	}
	require.True(t, c.Remembers(known))
	require.Equal(t, time.Duration(known)*(tick+1), c.After(known))
}

func TestStampAt(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	for i := range 20 {
		moveTo(c, time.Duration(i)*tick)
	}
	require.EqualValues(t, 7, c.StampAt(7*tick))
	require.EqualValues(t, 6, c.StampAt(7*tick-1))
	require.EqualValues(t, 19, c.StampAt(time.Hour))
	require.EqualValues(t, 0, c.StampAt(0))
}

func TestUnpackReturnsTheRoundedInstant(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	for _, around := range []time.Duration{0, 5 * tick, (1<<31 + 5) * tick, (1<<32 + 5) * tick, (3<<32 + 5) * tick} {
		for _, at := range []time.Duration{around + 1, around + tick - 1, around + tick, around + tick + 1} {
			want := (at + tick - 1) / tick * tick
			for _, now := range []time.Duration{at, at + time.Hour, max(at-time.Hour, 0)} {
				require.Equal(t, want, c.Unpack(c.Pack(at), now), "%v at %v", at, now)
			}
		}
	}
	require.NotZero(t, c.Pack(0), "0 stands for no instant")
	require.NotZero(t, c.Pack((1<<32)*tick))
	require.Zero(t, c.PackSome(0))
	require.Equal(t, c.Pack(tick), c.PackSome(tick))
	require.Zero(t, c.Unpack(0, time.Hour))
	c.time = 3*tick + 1
	require.EqualValues(t, 4, c.PackNow())
}

func TestClampKeepsAnInstantWithinReach(t *testing.T) {
	const tick = 10 * time.Millisecond
	c := newClock(tick, time.Second)
	low := c.Pack(5 * tick)
	near := low
	near = c.Clamp(near, (1<<30+5)*tick)
	require.Equal(t, low, near)
	near = c.Clamp(near, (1<<30+7)*tick)
	require.Equal(t, low+2, near, "2^30 ticks ago")
	none := Packed(0)
	none = c.Clamp(none, (1<<31)*tick)
	require.Zero(t, none)
	// Clamped often enough, the instant stays in range.
	for now := time.Duration(0); now < 1<<34; now += 1 << 29 {
		low = c.Clamp(low, now*tick)
		require.LessOrEqual(t, c.Unpack(low, now*tick), max(now, 5)*tick)
		require.GreaterOrEqual(t, c.Unpack(low, now*tick), (now-1<<30)*tick)
	}
}
