package wheel

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drive advances a wheel until it is empty, as a driver that sleeps until NextDue, and returns the
// number of wake-ups.
func drive(t *testing.T, w *Wheel[time.Duration], expire func(now, deadline time.Duration)) (wakes int) {
	t.Helper()
	for now := time.Duration(0); ; wakes++ {
		due, ok := w.NextDue()
		if !ok {
			return wakes
		}
		if due <= now {
			t.Fatalf("woken at %v for %v: nothing was done there", now, due)
		}
		now = due
		if _, more := w.Advance(now, math.MaxInt, func(_ Handle, d time.Duration) { expire(now, d) }); more {
			t.Fatal("an unbounded Advance leaves nothing")
		}
	}
}

func TestMillisecondsAndDaysInOneWheelAreExactToOneTick(t *testing.T) {
	const tick = time.Millisecond
	for _, slots := range []int{1, 2, 64, 1024} {
		w, err := New[time.Duration](tick, slots)
		require.NoError(t, err)
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 0))
		const day = 24 * time.Hour
		deadlines := []time.Duration{1, tick, tick + 1, day - 1, day, day + 1, 7 * day, 365 * day, 100 * 365 * day}
		for range 500 {
			deadlines = append(deadlines, time.Duration(rng.Int64N(int64(tick)<<rng.IntN(40))))
		}
		for _, d := range deadlines {
			w.Schedule(d, d)
		}
		fired := 0
		wakes := drive(t, w, func(now, deadline time.Duration) {
			fired++
			if want := max((deadline+tick-1)/tick*tick, tick); now != want {
				t.Fatalf("seed %d, %d slots: %v fired at %v, due at %v", seed, slots, deadline, now, want)
			}
		})
		require.Equal(t, len(deadlines), fired)
		require.LessOrEqual(t, wakes, len(deadlines)*(len(w.upper)+1), "at most one for each level that an entry comes down")
		require.LessOrEqual(t, len(w.upper), 8)
	}
}

func TestLevelsAreMadeOnDemand(t *testing.T) {
	w, err := New[time.Duration](time.Millisecond, 1024)
	require.NoError(t, err)
	w.Schedule(1023*time.Millisecond, 0)
	require.Empty(t, w.upper, "less than a turn needs one level")
	w.Schedule(1024*time.Millisecond, 0)
	require.Len(t, w.upper, 1)
	w.Schedule(24*time.Hour, 0)
	require.Len(t, w.upper, 3, "1024 x 64 x 64 x 64 ms are more than a day, one less is not")
}

func TestARescheduledEntryOfADayCostsOneWakePerLevel(t *testing.T) {
	w, err := New[time.Duration](time.Millisecond, 1024)
	require.NoError(t, err)
	h := w.Schedule(time.Millisecond, 24*time.Hour)
	w.Reschedule(h, 24*time.Hour)
	wakes := drive(t, w, func(now, deadline time.Duration) { require.Equal(t, deadline, now) })
	require.LessOrEqual(t, wakes, 5)
}

func TestALateAdvanceKeepsTheOrderOfTicks(t *testing.T) {
	w, err := New[time.Duration](time.Millisecond, 16)
	require.NoError(t, err)
	for range 2000 {
		d := time.Duration(1+rand.IntN(100_000)) * time.Millisecond
		w.Reschedule(w.Schedule(d/3, d), d)
	}
	last := time.Duration(0)
	n, _ := w.Advance(time.Hour, math.MaxInt, func(_ Handle, d time.Duration) {
		if d < last {
			t.Fatalf("%v after %v", d, last)
		}
		last = d
	})
	require.Equal(t, 2000, n)
}

func TestSlotsCountsEntries(t *testing.T) {
	w := newTestWheel(t, 64)
	require.Empty(t, collect(w))
	for range 20 {
		w.Schedule(3*testTick, "near")
	}
	w.Schedule(5*testTick, "near")
	w.Schedule(200*testTick, "far")
	require.Equal(t, []Slot{
		{Due: 3 * testTick, Span: testTick, Entries: 20},
		{Due: 5 * testTick, Span: testTick, Entries: 1},
		{Due: 192 * testTick, Span: 64 * testTick, Entries: 1},
	}, collect(w))
	w.Advance(3*testTick, 8, func(Handle, string) {})
	require.Equal(t, Slot{Due: 3 * testTick, Span: testTick, Entries: 12}, collect(w)[0], "what the budget has left")
	for range w.Slots() {
		break
	}
}

func collect(w *Wheel[string]) (slots []Slot) {
	for s := range w.Slots() {
		slots = append(slots, s)
	}
	return slots
}

func TestARescheduleToBeforeTheOriginInACallback(t *testing.T) {
	w := newTestWheel(t, 64)
	w.Schedule(testTick, "x")
	w.Advance(testTick, math.MaxInt, func(h Handle, _ string) {
		require.Equal(t, h, w.Reschedule(h, -3*testTick))
		d, ok := w.Deadline(h)
		require.True(t, ok)
		require.Zero(t, d)
	})
	require.Equal(t, []string{"x"}, advance(t, w, 2*testTick))
}

func TestAPanicAfterRescheduleKeepsTheEntry(t *testing.T) {
	w := newTestWheel(t, 64)
	w.Schedule(testTick, "x")
	require.Panics(t, func() {
		w.Advance(testTick, math.MaxInt, func(h Handle, _ string) {
			w.Reschedule(h, 9*testTick)
			panic("boom")
		})
	})
	require.Equal(t, 1, w.Len())
	require.Equal(t, []string{"x"}, advance(t, w, 9*testTick))
}

func TestSlotsDoNotCountCancelledEntries(t *testing.T) {
	w := newTestWheel(t, 64)
	var handles []Handle
	for i := range 100 {
		handles = append(handles, w.Schedule(time.Duration(i%3+1)*time.Second, "x"))
	}
	far := w.Schedule(1000*time.Hour, "far")
	count := func() (n, slots int) {
		for s := range w.Slots() {
			require.Positive(t, s.Entries)
			n += s.Entries
			slots++
		}
		return n, slots
	}
	n, slots := count()
	require.Equal(t, 101, n)
	require.Equal(t, 4, slots)
	for i, h := range handles {
		if i%3 == 0 || i < 10 {
			w.Cancel(h)
		}
	}
	w.Cancel(far)
	n, slots = count()
	require.Equal(t, w.Len(), n)
	require.Equal(t, 2, slots, "one has lost all of its entries, and so has the one of what was far away")
}
