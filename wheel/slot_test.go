package wheel

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drive advances a wheel until it is empty, as a driver that sleeps until NextDue, and returns the
// number of wake-ups.
func drive(t *testing.T, w *Wheel[time.Duration], now time.Duration, expire func(now, deadline time.Duration)) (wakes int) {
	t.Helper()
	for ; ; wakes++ {
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
	const (
		tick = time.Millisecond
		day  = 24 * time.Hour
	)
	for _, start := range []time.Duration{0, 63 * tick, day, 4095 * tick} {
		w, err := New[time.Duration](tick)
		require.NoError(t, err)
		w.Advance(start, 0, nil)
		seed := uint64(time.Now().UnixNano())
		rng := rand.New(rand.NewPCG(seed, 0))
		deadlines := []time.Duration{1, tick, tick + 1, day - 1, day, day + 1, 7 * day, 365 * day, 100 * 365 * day}
		for range 500 {
			deadlines = append(deadlines, time.Duration(rng.Int64N(int64(tick)<<rng.IntN(40))))
		}
		for i := range deadlines {
			deadlines[i] += start
			w.Schedule(deadlines[i], deadlines[i])
		}
		fired := 0
		wakes := drive(t, w, start, func(now, deadline time.Duration) {
			fired++
			if want := (deadline + tick - 1) / tick * tick; now != want {
				t.Fatalf("seed %d, from %v: %v fired at %v, due at %v", seed, start, deadline, now, want)
			}
		})
		require.Equal(t, len(deadlines), fired)
		require.LessOrEqual(t, wakes, len(deadlines)*levels, "at most one for each level that an entry comes down")
	}
}

func TestARescheduledEntryOfADayCostsOneWakePerLevel(t *testing.T) {
	w, err := New[time.Duration](time.Millisecond)
	require.NoError(t, err)
	h := w.Schedule(time.Millisecond, 24*time.Hour)
	w.Reschedule(h, 24*time.Hour)
	wakes := drive(t, w, 0, func(now, deadline time.Duration) { require.Equal(t, deadline, now) })
	require.LessOrEqual(t, wakes, 6, "a day are 64^4.4 ticks")
}

func TestSlotsCountsEntries(t *testing.T) {
	w := newTestWheel(t)
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

func TestASlotComesUpInOrderAndNoLaterThanItsDeadline(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ticks := []int64{0, 1, 62, 63, 64, 65, 127, 128, 4095, 4096, 4097, 1 << 18, 1<<24 - 1, 1 << 60, math.MaxInt64 - 1}
	for range 1000 {
		ticks = append(ticks, rng.Int64()>>rng.IntN(63))
	}
	for _, cursor := range ticks {
		h := hierarchy{tick: 1, cursor: min(cursor, math.MaxInt64-2)}
		for _, a := range ticks {
			a, b := max(a, h.cursor+1), max(a+1+rng.Int64()>>rng.IntN(63), h.cursor+2)
			sa, sb := h.slotOf(a), h.slotOf(b)
			if sa.group() == 0 || sa.level() >= levels || h.first(sa) > a || h.first(sa) <= h.cursor {
				t.Fatalf("at tick %d: tick %d is in slot %d, which comes up at %d", h.cursor, a, sa, h.first(sa))
			}
			if a <= b && sa > sb {
				t.Fatalf("at tick %d: tick %d is in slot %d, and the later tick %d in slot %d", h.cursor, a, sa, b, sb)
			}
			if after := a + 1<<sa.shift(); h.first(sa)+1<<sa.shift() <= a && after > 0 {
				t.Fatalf("at tick %d: tick %d is in slot %d, which is over then", h.cursor, a, sa)
			}
		}
	}
}

// TestBytesPerEntry bounds the memory of an entry beside its payload, with deadlines that lie close
// together, and with fewer entries than ticks.
func TestBytesPerEntry(t *testing.T) {
	const budget = 32 // measured on 2026-11-22: 24, and 27 if the payload is a pointer
	for _, tc := range []struct {
		name string
		n    int
		span time.Duration
	}{
		{"100,000 in 1 s", 100_000, time.Second},
		{"10,000 in 60 s", 10_000, time.Minute},
		{"10,000 in a year", 10_000, 365 * 24 * time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			four, eight := bytesPerEntry[uint32](t, tc.n, tc.span)-4, bytesPerEntry[*int](t, tc.n, tc.span)-8
			t.Logf("%.1f bytes beside a payload of 4 bytes, %.1f beside a pointer", four, eight)
			require.LessOrEqual(t, max(four, eight), float64(budget))
		})
	}
}

func bytesPerEntry[T any](t *testing.T, n int, span time.Duration) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w, err := New[T](time.Millisecond)
	require.NoError(t, err)
	var none T
	for i := range n {
		w.Schedule(span*time.Duration(i+1)/time.Duration(n), none)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(w)
	return float64(after.HeapAlloc-before.HeapAlloc) / float64(n)
}

func TestDeadlinesAreThoseOfPendingEntries(t *testing.T) {
	w := newTestWheel(t)
	require.Empty(t, slices.Collect(w.Deadlines()))
	var want []time.Duration
	for i := range 2 * pieceEntries {
		h := w.Schedule(time.Duration(i)*time.Second, "x")
		switch i % 3 {
		case 0:
			w.Cancel(h)
		case 1:
			w.Reschedule(h, time.Duration(i)*time.Hour)
			want = append(want, time.Duration(i)*time.Hour)
		default:
			want = append(want, time.Duration(i)*time.Second)
		}
	}
	require.ElementsMatch(t, want, slices.Collect(w.Deadlines()))
	for range w.Deadlines() {
		break
	}
}
