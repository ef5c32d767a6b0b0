package mono

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These constants are untyped, for instants and durations.
const (
	tick   = 10_000_000
	minute = 6000 * tick
	hour   = 60 * minute
)

// A testClock is a Clock with a real time that the test sets.
type testClock struct {
	Clock
	time Time
}

func newClock(memory time.Duration) *testClock {
	c := &testClock{}
	c.Init(tick, memory, func() Time { return c.time })
	return c
}

func moveTo(c *testClock, at Time) {
	c.time = at
	c.Move()
}

func TestClockMovesOncePerTickAndOverGaps(t *testing.T) {
	c := newClock(time.Second)
	for _, step := range []struct {
		elapsed, from, to Time
		stamp             Stamp
	}{
		{0, 0, 0, 0},
		{tick - 1, 0, 0, 0}, // the clock does not move
		{tick, 0, tick, 1},
		{2*tick - 1, tick, tick, 1},
		{2*tick + 3, tick, 2*tick + 3, 2},
		{3 * tick, 2*tick + 3, 3 * tick, 3}, // the multiple counts, not the distance
		{hour + 7, 3 * tick, hour + 7, 4},   // the process was stopped
		{minute, hour + 7, hour + 7, 4},     // the clock never moves back
	} {
		c.time = step.elapsed
		from, to := c.Move()
		require.Equal(t, [2]Time{step.from, step.to}, [2]Time{from, to}, "after %v", step.elapsed)
		require.Equal(t, step.to, c.Read(), "after %v", step.elapsed)
		require.Equal(t, step.stamp, c.Stamp(), "after %v", step.elapsed)
	}
}

// TestProcessStoppedInTheMiddleOfAMove stops it between the two readings. A byte is read before the
// stamp moves.
func TestProcessStoppedInTheMiddleOfAMove(t *testing.T) {
	c := newClock(time.Second)
	readings := []Time{tick, hour}
	c.elapsed = func() Time {
		at := readings[0]
		if readings = readings[1:]; len(readings) == 0 {
			require.Equal(t, Time(2*hour), c.Before(0, 2*hour), "only now bounds the stamp meanwhile")
		}
		return at
	}
	from, to := c.Move()
	require.Zero(t, from)
	require.Equal(t, Time(hour), to, "the gap ends when the events get the new stamp")
	require.Equal(t, Time(hour), c.Before(0, 2*hour), "a byte with the old stamp may be that recent")
}

func TestStampFromBeforeAGapIsBoundedByItsEnd(t *testing.T) {
	c := newClock(100 * tick)
	moveTo(c, tick)
	stamp := c.Stamp()
	require.Equal(t, Time(90*tick), c.Before(stamp, 90*tick), "the next move may be late: the only bound is now")
	moveTo(c, hour) // the process was stopped; bytes read meanwhile have the old stamp
	require.Equal(t, Time(hour), c.Before(stamp, 2*hour), "a byte may have come at the end of the gap")
	require.Equal(t, Time(tick), c.After(stamp))
	moveTo(c, hour+tick)
	require.Equal(t, Time(hour), c.Before(stamp, 2*hour))
	require.Equal(t, Time(hour+tick), c.Before(stamp+1, 2*hour))
}

// TestClockBoundsEveryStamp compares the bounds with the true times, with late moves and gaps.
func TestClockBoundsEveryStamp(t *testing.T) {
	const memory = 50 * tick
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newClock(memory)
	type event struct {
		at    Time
		stamp ShortStamp
	}
	var events []event
	elapsed := Time(0)
	for range 50_000 {
		switch rng.IntN(20) {
		case 0:
			elapsed += Time(rng.IntN(50)) * tick // a gap
		default:
			elapsed += Time(rng.IntN(tick))
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
		if before := c.Before(stamp, elapsed); before < e.at && elapsed.Sub(before) < memory {
			t.Fatalf("seed %d: an event at %v is said to be before %v, %v ago", seed, e.at, before, elapsed.Sub(before))
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
	const memory = time.Second
	c := newClock(memory)
	for i := range 10_000 {
		moveTo(c, Time(i)*tick)
	}
	require.GreaterOrEqual(t, c.Read().Sub(c.Before(0, 2*hour)), memory, "a connection that was heard that long ago is idle")
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

// TestNothingBoundsAStampWhileTheClockMoves reads bounds in the middle of a move, before its time
// is known.
func TestNothingBoundsAStampWhileTheClockMoves(t *testing.T) {
	c := newClock(time.Second)
	moveTo(c, tick)
	readings := 0
	c.elapsed = func() Time {
		if readings++; readings == 2 {
			require.EqualValues(t, 2, c.Stamp(), "the number has moved")
			require.Equal(t, Time(5*tick), c.Before(2, 5*tick))
			require.Equal(t, Time(5*tick), c.Before(1, 5*tick), "an event may just have got the old number")
			require.Equal(t, Time(tick), c.Before(0, 5*tick), "the last move bounds the stamp before it")
			require.Equal(t, Time(2*tick), c.Before(2, tick), "the reading is older than the move")
		}
		return 2 * tick
	}
	c.Move()
	require.Equal(t, 2, readings)
	require.Equal(t, Time(2*tick), c.Before(1, 5*tick))
	require.Equal(t, Time(5*tick), c.Before(2, 5*tick))
}

func TestRememberKeepsKnownMoves(t *testing.T) {
	c := newClock(10 * tick)
	for i := range 100 {
		moveTo(c, Time(i)*(tick+1))
	}
	require.Equal(t, time.Duration(10*tick), c.Memory())
	known := c.oldest(c.Stamp())
	before := c.Before(5, hour)
	c.Remember(5 * tick)
	require.Equal(t, time.Duration(10*tick), c.Memory(), "the memory never shrinks")
	c.Remember(50 * tick)
	require.Equal(t, time.Duration(50*tick), c.Memory())
	for stamp := known; stamp < c.Stamp(); stamp++ {
		require.True(t, c.Remembers(stamp))
		require.Equal(t, Time(stamp)*(tick+1), c.After(stamp))
		require.Equal(t, Time(stamp+1)*(tick+1), c.Before(stamp, hour))
	}
	require.False(t, c.Remembers(known-1), "a forgotten move stays forgotten")
	require.Equal(t, before, c.Before(5, hour), "a longer memory invents nothing")
	for i := range 40 {
		moveTo(c, Time(100+i)*(tick+1))
	}
	require.True(t, c.Remembers(known))
	require.Equal(t, Time(known)*(tick+1), c.After(known))
}

func TestStampAt(t *testing.T) {
	c := newClock(time.Second)
	for i := range 20 {
		moveTo(c, Time(i)*tick)
	}
	require.EqualValues(t, 7, c.StampAt(7*tick))
	require.EqualValues(t, 6, c.StampAt(7*tick-1))
	require.EqualValues(t, 19, c.StampAt(hour))
	require.EqualValues(t, 0, c.StampAt(0))
}

func TestUnpackReturnsTheRoundedInstant(t *testing.T) {
	c := newClock(time.Second)
	for _, around := range []Time{0, 5 * tick, (1<<31 + 5) * tick, (1<<32 + 5) * tick, (3<<32 + 5) * tick} {
		for _, at := range []Time{around + 1, around + tick - 1, around + tick, around + tick + 1} {
			want := (at + tick - 1) / tick * tick
			for _, now := range []Time{at, at + hour, max(at-hour, 0)} {
				require.Equal(t, want, c.Unpack(c.Pack(at), now), "%v at %v", at, now)
			}
		}
	}
	require.NotZero(t, c.Pack(0), "0 stands for no instant")
	require.NotZero(t, c.Pack((1<<32)*tick))
	require.Zero(t, c.PackSome(0))
	require.Equal(t, c.Pack(tick), c.PackSome(tick))
	require.Zero(t, c.Unpack(0, hour))
	c.time = 3*tick + 1
	require.EqualValues(t, 4, c.PackNow())
}

func TestClampKeepsAnInstantWithinReach(t *testing.T) {
	c := newClock(time.Second)
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
	for now := Time(0); now < 1<<34; now += 1 << 29 {
		low = c.Clamp(low, now*tick)
		require.LessOrEqual(t, c.Unpack(low, now*tick), max(now, 5)*tick)
		require.GreaterOrEqual(t, c.Unpack(low, now*tick), (now-1<<30)*tick)
	}
}
