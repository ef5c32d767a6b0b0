package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testTick = 10 * time.Millisecond

func newTestWheel(t testing.TB, slots int) *Wheel[string] {
	t.Helper()
	w, err := New[string](testTick, slots)
	require.NoError(t, err)
	return w
}

// advance returns the entries that expire at now, and checks the wheel afterwards.
func advance(t testing.TB, w *Wheel[string], now time.Duration) []string {
	t.Helper()
	var got []string
	n, more := w.Advance(now, math.MaxInt, func(_ Handle, p string) { got = append(got, p) })
	check(t, w, now)
	require.Equal(t, len(got), n, "Advance must count what it expired")
	require.False(t, more, "an unbounded Advance leaves nothing")
	return got
}

// walkSlots returns the tick at which each id in the slots of a wheel comes up.
func walkSlots[E comparable](t testing.TB, h *hierarchy, blocks *blocks[E]) map[E]int64 {
	t.Helper()
	comesUp := map[E]int64{}
	fileAt := func(tick int64) func(E, uint32, uint32) {
		return func(id E, _, _ uint32) {
			if _, twice := comesUp[id]; twice {
				t.Fatalf("id %v is in two slots", id)
			}
			comesUp[id] = tick
		}
	}
	for level := range h.levels() {
		for i, l := range level.filed.slots {
			if bit := level.filed.occupied[i/64]>>(i%64)&1 == 1; bit == l.empty() {
				t.Fatalf("slot %d of shift %d: bit is %v, empty is %v", i, level.shift, bit, l.empty())
			}
			first := h.cursor>>level.shift + 1
			walkList(t, blocks, l, fileAt((first+(int64(i)-first)&level.mask)<<level.shift))
		}
		walkList(t, blocks, level.draining, fileAt(h.cursor))
	}
	return comesUp
}

func walkList[E any](t testing.TB, blocks *blocks[E], l list, see func(id E, block, index uint32)) {
	t.Helper()
	room := l.room
	for b := l.head; b != 0; b = blocks.at(b).next {
		if room == blockIDs {
			t.Fatal("a linked block is empty")
		}
		for i := room; i < blockIDs; i++ {
			see(blocks.at(b).ids[i], b, i)
		}
		room = 0
	}
}

// check walks the whole wheel and fails if an invariant is broken. A wheel that has stopped in the
// middle of an Advance to now may hold overdue entries in slots up to there. It uses no assertions
// of testify: they would take minutes here.
func check[T any](t testing.TB, w *Wheel[T], now time.Duration) {
	t.Helper()
	comesUp := walkSlots(t, &w.hierarchy, &w.blocks)

	free := map[uint32]bool{}
	walkList(t, &w.blocks, w.free, func(id uint32, _, _ uint32) {
		if free[id] {
			t.Fatalf("id %d is free twice", id)
		}
		free[id] = true
	})

	pending, dead := 0, 0
	for id := uint32(1); id < w.entries.used; id++ {
		e := w.entries.at(id)
		tick, filed := comesUp[id]
		if places := count(e.pending(), !e.pending() && filed, free[id]); places != 1 {
			t.Fatalf("id %d: pending is %v, in a slot is %v, free is %v", id, e.pending(), filed, free[id])
		}
		if (e.deadline() != unfiled) != filed {
			t.Fatalf("id %d: deadline is %d, in a slot is %v", id, e.deadline(), filed)
		}
		if !e.pending() {
			if filed {
				dead++
			}
			continue
		}
		pending++
		due := e.deadline() / w.tick
		if e.deadline()%w.tick != 0 {
			due++
		}
		if latest := max(due, w.cursor+1, int64(now)/w.tick); tick > latest {
			t.Fatalf("id %d: its slot comes up at tick %d, which is after %d", id, tick, latest)
		}
	}
	if dead != w.dead {
		t.Fatalf("%d entries are cancelled and in slots, counted were %d", dead, w.dead)
	}
	if pending != w.Len() {
		t.Fatalf("%d entries are pending, Len is %d", pending, w.Len())
	}
}

// count returns the number of its arguments that are true.
func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

func TestNewRejectsBadArguments(t *testing.T) {
	for _, tc := range []struct {
		tick  time.Duration
		slots int
		want  []string
	}{
		{0, 64, []string{"tick is 0s, must be positive"}},
		{-time.Second, 64, []string{"tick is -1s"}},
		{time.Second, 0, []string{"0 slots, must be a power of two"}},
		{time.Second, -64, []string{"-64 slots"}},
		{time.Second, 100, []string{"100 slots"}},
		{time.Second, 1 << 25, []string{"33554432 slots"}},
		{0, 3, []string{"tick is 0s", "3 slots"}},
	} {
		_, err := New[int](tc.tick, tc.slots)
		for _, want := range tc.want {
			assert.ErrorContains(t, err, want)
		}
	}
	for slots := 1; slots <= 1<<12; slots *= 2 {
		_, err := New[int](1, slots)
		assert.NoError(t, err)
	}
}

func TestExpiryIsNeverEarlyAndAtMostOneTickLate(t *testing.T) {
	const turn = 64 * testTick
	delays := []time.Duration{
		0, 1, testTick - 1, testTick, testTick + 1, 5*testTick + 3, turn - testTick, turn - 1, turn, turn + 1,
		turn + testTick, 3 * turn, 3*turn + 1, 10*turn - 1,
	}
	starts := []time.Duration{0, 1, testTick / 2, testTick - 1, 63 * testTick, 64 * testTick, 1000*testTick + 7}
	for _, start := range starts {
		for _, delay := range delays {
			t.Run(fmt.Sprintf("at %v in %v", start, delay), func(t *testing.T) {
				w := newTestWheel(t, 64)
				advance(t, w, start)
				deadline := start + delay
				w.Schedule(deadline, "x")
				due := (deadline + testTick - 1) / testTick * testTick
				if floor := start / testTick * testTick; due <= floor {
					due = floor + testTick // a passed deadline is due at the next tick
				}
				require.Empty(t, advance(t, w, due-1), "nothing may fire before %v", due)
				require.Equal(t, []string{"x"}, advance(t, w, due), "due at %v", due)
				require.Less(t, due-deadline, testTick+1)
				require.Empty(t, advance(t, w, due+10*turn), "it fires once")
			})
		}
	}
}

func TestAnInstantBeforeTheOriginIsTheOrigin(t *testing.T) {
	w := newTestWheel(t, 64)
	w.Schedule(math.MinInt64, "x")
	require.Empty(t, advance(t, w, math.MinInt64))
	require.Equal(t, []string{"x"}, advance(t, w, testTick))
}

func TestTheFurthestDeadlineNeverFires(t *testing.T) {
	w := newTestWheel(t, 64)
	h := w.Schedule(math.MaxInt64, "x")
	for now := testTick; now < math.MaxInt64/2; now *= 2 {
		require.Empty(t, advance(t, w, now))
	}
	require.Empty(t, advance(t, w, math.MaxInt64))
	due, ok := w.NextDue()
	require.True(t, ok)
	require.Positive(t, due, "no overflow")
	require.True(t, w.Cancel(h))
}

func TestALateAdvanceExpiresAllDueEntries(t *testing.T) {
	for _, late := range []int{1, 5, 63, 64, 65, 1000, 64_000} {
		w := newTestWheel(t, 64)
		due := 0
		for i := 1; i <= 1000; i++ {
			w.Schedule(time.Duration(i)*testTick, "x")
			if i <= late {
				due++
			}
		}
		require.Len(t, advance(t, w, time.Duration(late)*testTick), due, "%d ticks late", late)
		require.Equal(t, 1000-due, w.Len())
	}
}

func TestAnEntryScheduledDuringALateAdvanceExpires(t *testing.T) {
	w := newTestWheel(t, 64)
	now := 5000 * testTick
	for i := 1; i <= 64; i++ { // one entry per slot; each callback also schedules a passed instant
		w.Schedule(time.Duration(i)*testTick, "first")
	}
	second := 0
	w.Advance(now, math.MaxInt, func(_ Handle, p string) {
		if p == "first" {
			w.Schedule(2000*testTick, "second")
		} else {
			second++
		}
	})
	check(t, w, 0)
	second += len(advance(t, w, now+testTick))
	require.Equal(t, 64, second, "all are due at the next tick at the latest")
}

func TestTimeThatStandsStillOrGoesBackDoesNothing(t *testing.T) {
	w := newTestWheel(t, 64)
	require.Empty(t, advance(t, w, 100*testTick))
	w.Schedule(101*testTick, "x")
	require.Empty(t, advance(t, w, 100*testTick))
	require.Empty(t, advance(t, w, 50*testTick))
	w.Schedule(60*testTick, "y")
	due, ok := w.NextDue()
	require.True(t, ok)
	require.Equal(t, 101*testTick, due, "what has passed is due at the tick after the last one")
	require.Empty(t, advance(t, w, 101*testTick-1))
	require.ElementsMatch(t, []string{"x", "y"}, advance(t, w, 101*testTick))
}

func TestCancel(t *testing.T) {
	w := newTestWheel(t, 64)
	require.False(t, w.Cancel(0), "the zero Handle names nothing")
	require.False(t, w.Cancel(newHandle(7, 1)), "an id that was never used")
	h := w.Schedule(testTick, "x")
	require.NotZero(t, h)
	require.True(t, w.Cancel(h))
	require.Zero(t, w.Len())
	require.False(t, w.Cancel(h), "twice")
	require.Zero(t, w.Reschedule(h, time.Hour), "a stale Handle")
	_, ok := w.Deadline(h)
	require.False(t, ok)
	require.Empty(t, advance(t, w, time.Second))
}

func TestAStaleHandleNeverHitsAnotherEntry(t *testing.T) {
	w := newTestWheel(t, 64)
	old := w.Schedule(testTick, "old")
	w.Cancel(old)
	h := w.Schedule(2*testTick, "new")
	require.Equal(t, old.id(), h.id(), "the place is used again at once")
	require.False(t, w.Cancel(old))
	require.Zero(t, w.Reschedule(old, time.Hour))
	require.Empty(t, advance(t, w, testTick))
	require.Equal(t, []string{"new"}, advance(t, w, 2*testTick))
}

func TestPayloadIsReleased(t *testing.T) {
	w := newTestWheel(t, 64)
	cancelled, fired := w.Schedule(testTick, "a"), w.Schedule(testTick, "b")
	w.Cancel(cancelled)
	advance(t, w, testTick)
	require.Empty(t, *w.entries.at(cancelled.id()).payload())
	require.Empty(t, *w.entries.at(fired.id()).payload(), "what it points to can be collected")
}

func TestReschedule(t *testing.T) {
	w := newTestWheel(t, 64)
	h := w.Schedule(5*testTick, "x")
	later := w.Reschedule(h, 200*testTick)
	require.Equal(t, h, later, "a later deadline keeps the Handle")
	require.Empty(t, advance(t, w, 200*testTick-1))
	earlier := w.Reschedule(h, 201*testTick)
	require.Equal(t, h, earlier)
	moved := w.Reschedule(h, 200*testTick)
	require.NotEqual(t, h, moved, "an earlier one makes a new entry")
	require.Zero(t, w.Reschedule(h, time.Hour), "and the old Handle is stale")
	require.Equal(t, []string{"x"}, advance(t, w, 200*testTick))
	require.Zero(t, w.Len())
}

func TestNextDueIsNeverLaterThanTheFirstDeadline(t *testing.T) {
	w := newTestWheel(t, 64)
	_, ok := w.NextDue()
	require.False(t, ok, "an empty wheel has nothing due")
	h := w.Schedule(7*testTick+1, "x")
	due, ok := w.NextDue()
	require.True(t, ok)
	require.Equal(t, 8*testTick, due)
	w.Schedule(testTick, "y")
	due, _ = w.NextDue()
	require.Equal(t, testTick, due)
	require.Equal(t, []string{"y"}, advance(t, w, testTick))
	w.Reschedule(h, 30*testTick)
	due, _ = w.NextDue()
	require.Equal(t, 8*testTick, due, "a rescheduled entry is taken out of its old slot")
	require.Empty(t, advance(t, w, 8*testTick))
	due, _ = w.NextDue()
	require.Equal(t, 30*testTick, due, "and filed again")
	require.Equal(t, []string{"x"}, advance(t, w, due))
	_, ok = w.NextDue()
	require.False(t, ok)
}

func TestBudgetStopsInTheMiddleOfASlot(t *testing.T) {
	w := newTestWheel(t, 64)
	for range 100 {
		w.Schedule(3*testTick, "x")
	}
	total := 0
	expire := func(Handle, string) { total++ }
	n, more := w.Advance(3*testTick, 0, expire)
	require.Zero(t, n)
	require.True(t, more, "no budget, but work")
	n, more = w.Advance(3*testTick, -5, expire)
	require.Zero(t, n)
	require.True(t, more)
	n, more = w.Advance(3*testTick, 40, expire)
	require.Equal(t, 40, n)
	require.True(t, more)
	check(t, w, 0)
	due, ok := w.NextDue()
	require.True(t, ok)
	require.LessOrEqual(t, due, 3*testTick, "what is left is due already")
	w.Schedule(3*testTick, "late")
	n, more = w.Advance(4*testTick, 60, expire)
	require.Equal(t, 60, n)
	require.True(t, more, "the late one is due at the next tick")
	n, more = w.Advance(4*testTick, 60, expire)
	require.Equal(t, 1, n)
	require.False(t, more)
	require.Equal(t, 101, total)
}

func TestBudgetCountsEntriesThatAreNotDue(t *testing.T) {
	w := newTestWheel(t, 64)
	for range 100 {
		w.Reschedule(w.Schedule(3*testTick, "x"), 10*testTick)
	}
	n, more := w.Advance(3*testTick, 40, nil)
	require.Zero(t, n)
	require.True(t, more, "the work of one call is bounded, also where nothing expires")
}

func TestCallbackMayDoAnythingButAdvance(t *testing.T) {
	t.Run("cancel its neighbour in the same slot", func(t *testing.T) {
		w := newTestWheel(t, 64)
		h := [2]Handle{}
		fired := 0
		h[0], h[1] = w.Schedule(testTick, "0"), w.Schedule(testTick, "1")
		w.Advance(testTick, math.MaxInt, func(_ Handle, p string) {
			fired++
			other := h[1]
			if p == "1" {
				other = h[0]
			}
			require.True(t, w.Cancel(other))
			require.Equal(t, 1, w.Len(), "the firing entry counts until its callback returns")
		})
		require.Equal(t, 1, fired, "one of the two cancelled the other")
		require.Zero(t, w.Len())
		check(t, w, 0)
	})
	t.Run("reschedule its neighbour in the same slot", func(t *testing.T) {
		w := newTestWheel(t, 64)
		h := map[string]Handle{"0": w.Schedule(testTick, "0"), "1": w.Schedule(testTick, "1")}
		other := map[string]string{"0": "1", "1": "0"}
		var got []string
		w.Advance(testTick, math.MaxInt, func(_ Handle, p string) {
			got = append(got, p)
			h[other[p]] = w.Reschedule(h[other[p]], 9*testTick)
		})
		require.Len(t, got, 1)
		require.Empty(t, advance(t, w, 9*testTick-1))
		require.Equal(t, []string{other[got[0]]}, advance(t, w, 9*testTick))
	})
	t.Run("reschedule itself and keep its Handle", func(t *testing.T) {
		w := newTestWheel(t, 64)
		h := w.Schedule(testTick, "x")
		fired := 0
		again := func(got Handle, _ string) {
			fired++
			require.Equal(t, h, got)
			_, ok := w.Deadline(got)
			require.False(t, ok, "it has no deadline until rescheduled")
			require.Equal(t, h, w.Reschedule(h, time.Duration(fired+1)*testTick))
		}
		for i := range 200 {
			w.Advance(time.Duration(i)*testTick, math.MaxInt, again)
			check(t, w, 0)
		}
		require.Equal(t, 199, fired)
		require.Equal(t, 1, w.Len())
	})
	t.Run("reschedule itself into the past: once per tick, not for ever", func(t *testing.T) {
		w := newTestWheel(t, 64)
		w.Schedule(0, "x")
		fired := 0
		w.Advance(100*testTick, math.MaxInt, func(h Handle, _ string) {
			fired++
			w.Reschedule(h, 0)
		})
		require.LessOrEqual(t, fired, 100)
		check(t, w, 0)
	})
	t.Run("cancel itself, and schedule another in its place", func(t *testing.T) {
		w := newTestWheel(t, 64)
		w.Schedule(testTick, "x")
		w.Advance(testTick, math.MaxInt, func(h Handle, _ string) {
			require.True(t, w.Cancel(h))
			require.False(t, w.Cancel(h))
			require.Zero(t, w.Reschedule(h, time.Hour))
			w.Schedule(2*testTick, "y")
		})
		require.Equal(t, 1, w.Len())
		require.Equal(t, []string{"y"}, advance(t, w, 2*testTick))
	})
	t.Run("schedule one turn ahead, into the slot being drained", func(t *testing.T) {
		w := newTestWheel(t, 64)
		w.Schedule(testTick, "x")
		w.Advance(testTick, math.MaxInt, func(Handle, string) { w.Schedule(65*testTick, "y") })
		require.Empty(t, advance(t, w, 65*testTick-1))
		require.Equal(t, []string{"y"}, advance(t, w, 65*testTick))
	})
	t.Run("purge", func(t *testing.T) {
		w := newTestWheel(t, 64)
		hs := []Handle{}
		for range 50 {
			hs = append(hs, w.Schedule(testTick, "x"))
		}
		fired := 0
		w.Advance(testTick, math.MaxInt, func(h Handle, _ string) {
			fired++
			for _, other := range hs {
				if other != h {
					w.Cancel(other)
				}
			}
			w.Purge()
		})
		require.Equal(t, 1, fired)
		check(t, w, 0)
	})
	t.Run("but not advance", func(t *testing.T) {
		w := newTestWheel(t, 64)
		w.Schedule(testTick, "x")
		require.PanicsWithValue(t, "wheel: Advance called from an expiry callback", func() {
			w.Advance(testTick, math.MaxInt, func(Handle, string) {
				w.Advance(2*testTick, math.MaxInt, func(Handle, string) {})
			})
		})
	})
}

func TestAWheelWorksAfterAPanic(t *testing.T) {
	w := newTestWheel(t, 64)
	for _, p := range []string{"a", "b", "c"} {
		w.Schedule(testTick, p)
	}
	require.PanicsWithValue(t, "boom", func() {
		w.Advance(testTick, math.MaxInt, func(Handle, string) { panic("boom") })
	})
	check(t, w, 0)
	require.Equal(t, 2, w.Len(), "the one that panicked is gone")
	require.Len(t, advance(t, w, testTick), 2, "the others are not")
}

func TestPurge(t *testing.T) {
	w := newTestWheel(t, 64)
	require.Zero(t, w.Purge())
	var far []Handle
	for range 100 {
		far = append(far, w.Schedule(time.Hour, "far"))
		w.Schedule(time.Second, "near")
	}
	for _, h := range far {
		w.Cancel(h)
	}
	require.Equal(t, 100, w.Purge())
	check(t, w, 0)
	used := w.entries.used
	for range 100 {
		w.Schedule(testTick, "soon")
	}
	require.Equal(t, used, w.entries.used, "the places are free for earlier deadlines")
	require.Len(t, advance(t, w, testTick), 100)
	require.Len(t, advance(t, w, time.Second), 100)
}

func TestChurnWithEqualTimeoutsNeedsNoMoreThanItsPeak(t *testing.T) {
	w := newTestWheel(t, 1024)
	now := time.Duration(0)
	for range 100_000 {
		w.Cancel(w.Schedule(now+10*time.Second, "x"))
		now += testTick / 8
		w.Advance(now, math.MaxInt, nil)
	}
	check(t, w, 0)
	require.LessOrEqual(t, w.entries.used, uint32(2), "the next entry has a later deadline and reuses the place")
}

func TestChurnWithRandomTimeoutsNeedsLittleMoreThanItsPeak(t *testing.T) {
	const n = 1000
	for _, slots := range []int{64, 1024, 1 << 14} {
		w := newTestWheel(t, slots)
		rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
		timeout := func() time.Duration { return time.Minute + time.Duration(rng.Int64N(int64(time.Minute))) }
		handles := make([]Handle, n)
		for i := range handles {
			handles[i] = w.Schedule(timeout(), "x")
		}
		now := time.Duration(0)
		for range 300_000 {
			i := rng.IntN(n)
			w.Cancel(handles[i])
			handles[i] = w.Schedule(now+timeout(), "x")
			now += 10 * time.Microsecond // nothing comes up in three seconds
		}
		check(t, w, now)
		require.LessOrEqual(t, w.entries.used, uint32(2*n+deadSlack)*5/4, "%d slots: places of cancelled entries are used again", slots)
	}
}

func TestEqualDeadlinesKeepMemoryLinear(t *testing.T) {
	w := newTestWheel(t, 64)
	for range 100_000 {
		w.Schedule(time.Second, "x")
	}
	require.LessOrEqual(t, int(w.blocks.used), 100_000/blockIDs+3)
	require.Len(t, advance(t, w, time.Second), 100_000)
	used := w.blocks.used
	for range 100_000 {
		w.Schedule(2*time.Second, "x")
	}
	require.LessOrEqual(t, w.blocks.used, used+uint32(100_000/blockIDs)+3)
	require.Equal(t, uint32(100_001), w.entries.used, "places are used again")
}

func TestNoOperationAllocates(t *testing.T) {
	w, err := New[uint64](testTick, 1024)
	require.NoError(t, err)
	const n = 1000
	handles := make([]Handle, n)
	now := time.Duration(0)
	expire := func(h Handle, i uint64) { handles[i] = 0 }
	round := func() {
		for i := range handles {
			handles[i] = w.Schedule(now+time.Duration(i%50)*testTick, uint64(i))
		}
		for i, h := range handles {
			handles[i] = w.Reschedule(h, now+time.Duration(i%70)*testTick) // some later, some earlier
		}
		for i := 0; i < n; i += 3 {
			w.Cancel(handles[i])
		}
		now += time.Second
		w.NextDue()
		w.Advance(now, math.MaxInt, expire)
	}
	round()
	round()
	require.Zero(t, testing.AllocsPerRun(100, round))
}
