package mono

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These constants are untyped, for instants and durations.
const (
	millisecond = 1_000_000
	minute      = 60_000 * millisecond
	hour        = 60 * minute
)

// A testClock is a Clock with a real time that the test sets.
type testClock struct {
	Clock
	time Time
}

func newClock(tick, memory time.Duration) *testClock {
	c := &testClock{}
	c.Init(tick, memory, func() Time { return c.time })
	return c
}

func moveTo(c *testClock, at Time) {
	c.time = at
	c.Move()
}

func TestProcessStoppedInTheMiddleOfAMove(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
	// The process is stopped between the two readings, and a byte is read before the stamp moves.
	readings := []Time{tick, hour}
	c.elapsed = func() Time {
		at := readings[0]
		readings = readings[1:]
		if len(readings) == 0 {
			require.Equal(t, Time(2*hour), c.Before(0, 2*hour), "only now bounds the stamp meanwhile")
		}
		return at
	}
	c.Move()
	require.Equal(t, Time(hour), c.Before(0, 2*hour), "a byte with the old stamp may be that recent")
}

func TestClockMovesOncePerTickAndOverGaps(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
	for _, step := range []struct {
		elapsed, read Time
		now           Stamp
	}{
		{0, 0, 0},
		{tick - 1, 0, 0},
		{tick, tick, 1},
		{tick + 5, tick, 1},
		{2*tick - 1, tick, 1},
		{2*tick + 3, 2*tick + 3, 2},
		{3 * tick, 3 * tick, 3}, // the multiple counts, not the distance
		{hour + 7, hour + 7, 4},
		{minute, hour + 7, 4}, // the clock never moves back
	} {
		moveTo(c, step.elapsed)
		require.Equal(t, step.now, c.Stamp(), "after %v", step.elapsed)
		require.Equal(t, step.read, c.Read(), "after %v", step.elapsed)
	}
}

func TestStampFromBeforeAGapIsBoundedByItsEnd(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, 100*tick)
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
	const tick, memory = 10 * millisecond, 500 * millisecond
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	c := newClock(tick, memory)
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
	const tick, memory = 10 * millisecond, time.Second
	c := newClock(tick, memory)
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

func TestMoveReturnsTheTimesOfTheLastMoveAndOfThisOne(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
	for _, step := range []struct{ elapsed, from, to Time }{
		{tick - 1, 0, 0}, // the clock does not move
		{tick + 1, 0, tick + 1},
		{2*tick - 1, tick + 1, tick + 1},
		{2 * tick, tick + 1, 2 * tick},
		{hour, 2 * tick, hour}, // the process was stopped
		{minute, hour, hour},
	} {
		c.time = step.elapsed
		from, to := c.Move()
		require.Equal(t, step.from, from, "at %v", step.elapsed)
		require.Equal(t, step.to, to, "at %v", step.elapsed)
		require.Equal(t, to, c.Read())
	}
	// The process is stopped in the middle of a move.
	readings := []Time{hour + tick, hour + 50*tick}
	c.elapsed = func() Time {
		at := readings[0]
		readings = readings[min(1, len(readings)-1):]
		return at
	}
	from, to := c.Move()
	require.Equal(t, Time(hour), from)
	require.Equal(t, Time(hour+50*tick), to, "the gap ends when the events get the new stamp")
}

// TestNothingBoundsAStampWhileTheClockMoves reads bounds in the middle of a move, before its time
// is known.
func TestNothingBoundsAStampWhileTheClockMoves(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
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
	const tick = 10 * millisecond
	c := newClock(tick, 10*tick)
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
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
	for i := range 20 {
		moveTo(c, Time(i)*tick)
	}
	require.EqualValues(t, 7, c.StampAt(7*tick))
	require.EqualValues(t, 6, c.StampAt(7*tick-1))
	require.EqualValues(t, 19, c.StampAt(hour))
	require.EqualValues(t, 0, c.StampAt(0))
}

func TestUnpackReturnsTheRoundedInstant(t *testing.T) {
	const tick = 10 * millisecond
	c := newClock(tick, time.Second)
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
	const tick = 10 * millisecond
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
	for now := Time(0); now < 1<<34; now += 1 << 29 {
		low = c.Clamp(low, now*tick)
		require.LessOrEqual(t, c.Unpack(low, now*tick), max(now, 5)*tick)
		require.GreaterOrEqual(t, c.Unpack(low, now*tick), (now-1<<30)*tick)
	}
}
