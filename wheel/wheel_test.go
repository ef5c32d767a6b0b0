package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const testTick = 10 * time.Millisecond

func newTestWheel(t testing.TB) *Wheel[string] {
	t.Helper()
	w, err := New[string](testTick)
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

// check walks the whole wheel and fails if an invariant is broken. A wheel that has stopped in the
// middle of an Advance to now may hold overdue entries in slots up to there. It uses no assertions
// of testify: they would take minutes here.
func check[T comparable](t testing.TB, w *Wheel[T], now time.Duration) {
	t.Helper()
	linked := map[uint32]bool{}
	for i, head := range w.heads {
		s := slot(i)
		if occupied := w.occupied[s.level()]>>s.group()&1 == 1; occupied != (head != 0) {
			t.Fatalf("slot %d: its bit is %v, its first id is %d", s, occupied, head)
		}
		if head != 0 && s != w.draining && s != expiring && w.first(s) <= w.cursor {
			t.Fatalf("slot %d comes up at tick %d, which is not after %d", s, w.first(s), w.cursor)
		}
		prev := uint32(0)
		for id := head; id != 0; id = w.linkOf(id).next {
			e := w.at(id)
			if linked[id] || w.linkOf(id).prev != prev || e.slot != s || !e.pending() {
				t.Fatalf("slot %d: id %d after %d: linked twice is %v, entry is %+v", s, id, prev, linked[id], e)
			}
			due := e.deadline / w.tick
			if e.deadline%w.tick != 0 {
				due++
			}
			latest := max(due, w.cursor+1, int64(now)/w.tick)
			if s != expiring && w.first(s) > latest {
				t.Fatalf("id %d: its slot comes up at tick %d, which is after %d", id, w.first(s), latest)
			}
			linked[id], prev = true, id
		}
	}
	if len(linked) != w.Len() {
		t.Fatalf("%d entries are in slots, Len is %d", len(linked), w.Len())
	}
	var zero T
	free := map[uint32]bool{}
	for id := w.free; id != 0; id = w.linkOf(id).next {
		if e := w.at(id); free[id] || e.pending() || *w.payload(id) != zero {
			t.Fatalf("id %d is free: twice is %v, entry is %+v, payload %v", id, free[id], e, *w.payload(id))
		}
		free[id] = true
	}
	if all := len(free) + len(linked) + 1; w.used > 0 && all != int(w.used) {
		t.Fatalf("%d ids are free, in a slot, or 0; %d are used", all, w.used)
	}
}

func TestNewRejectsATickThatIsNotPositive(t *testing.T) {
	for _, tick := range []time.Duration{0, -1, -time.Second, math.MinInt64} {
		_, err := New[int](tick)
		require.EqualError(t, err, fmt.Sprintf("wheel: tick is %v, must be positive", tick))
	}
	for _, tick := range []time.Duration{1, time.Second, math.MaxInt64} {
		_, err := New[int](tick)
		require.NoError(t, err)
	}
}

func TestExpiryIsNeverEarlyAndAtMostOneTickLate(t *testing.T) {
	const turn = 64 * testTick
	delays := []time.Duration{
		0, 1, testTick - 1, testTick, testTick + 1, 5*testTick + 3, turn - testTick, turn - 1, turn, turn + 1,
		turn + testTick, 3 * turn, 3*turn + 1, 10*turn - 1, 64*turn - 1, 64 * turn, 64*turn + 1, 64 * 64 * turn, 64*64*turn + 1,
	}
	starts := []time.Duration{0, 1, testTick / 2, testTick - 1, 63 * testTick, 64 * testTick, 1000*testTick + 7}
	for _, start := range starts {
		for _, delay := range delays {
			t.Run(fmt.Sprintf("at %v in %v", start, delay), func(t *testing.T) {
				w := newTestWheel(t)
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
	w := newTestWheel(t)
	w.Schedule(math.MinInt64, "x")
	require.Empty(t, advance(t, w, math.MinInt64))
	require.Equal(t, []string{"x"}, advance(t, w, testTick))
}

func TestTheFurthestDeadlineNeverFires(t *testing.T) {
	w := newTestWheel(t)
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

func TestTimeThatStandsStillOrGoesBackDoesNothing(t *testing.T) {
	w := newTestWheel(t)
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
	w := newTestWheel(t)
	require.False(t, w.Cancel(0), "the zero Handle names nothing")
	require.False(t, w.Cancel(newHandle(7, 1)), "an id that was never used")
	h := w.Schedule(testTick, "x")
	require.NotZero(t, h)
	require.True(t, w.Cancel(h))
	require.Zero(t, w.Len())
	require.False(t, w.Cancel(h), "twice")
	require.False(t, w.Reschedule(h, time.Hour), "a stale Handle")
	_, ok := w.Deadline(h)
	require.False(t, ok)
	require.Empty(t, advance(t, w, time.Second))
}

func TestALaterRescheduleLeavesTheEntryInItsSlot(t *testing.T) {
	w := newTestWheel(t)
	h := w.Schedule(5*testTick, "x")
	for _, tc := range []struct{ deadline, due time.Duration }{
		{70 * testTick, 5 * testTick},
		{6 * testTick, 5 * testTick}, // earlier than before, but after the slot
		{5 * testTick, 5 * testTick},
		{4 * testTick, 4 * testTick},
		{9 * testTick, 4 * testTick},
		{-1, testTick},
	} {
		require.True(t, w.Reschedule(h, tc.deadline))
		check(t, w, 0)
		due, _ := w.NextDue()
		require.Equal(t, tc.due, due, "%v", tc.deadline)
		deadline, _ := w.Deadline(h)
		require.Equal(t, max(tc.deadline, 0), deadline)
	}
}

func TestBudgetStopsInTheMiddleOfASlot(t *testing.T) {
	w := newTestWheel(t)
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
	w := newTestWheel(t)
	for range 100 {
		w.Reschedule(w.Schedule(3*testTick, "x"), 10*testTick)
	}
	n, more := w.Advance(3*testTick, 40, nil)
	require.Zero(t, n)
	require.True(t, more, "the work of one call is bounded, also where nothing expires")
}

// TestCallbackMayDoAnythingButAdvance has two entries in a slot. The callback of the first acts.
func TestCallbackMayDoAnythingButAdvance(t *testing.T) {
	for name, tc := range map[string]struct {
		act   func(w *Wheel[string], self, other Handle) (ok bool)
		fired int           // entries in this slot
		later time.Duration // deadline of the entry that is left, 0 if there is none
	}{
		"cancel its neighbour": {func(w *Wheel[string], _, other Handle) bool {
			return w.Cancel(other) && w.Len() == 1 // the firing entry counts until its callback returns
		}, 1, 0},
		"reschedule its neighbour": {func(w *Wheel[string], _, other Handle) bool {
			return w.Reschedule(other, 9*testTick)
		}, 1, 9 * testTick},
		"reschedule itself": {func(w *Wheel[string], self, _ Handle) bool {
			_, ok := w.Deadline(self)
			return !ok && w.Reschedule(self, 9*testTick)
		}, 2, 9 * testTick},
		"cancel itself, and schedule another in its place": {func(w *Wheel[string], self, _ Handle) bool {
			return w.Cancel(self) && !w.Cancel(self) && !w.Reschedule(self, time.Hour) && w.Schedule(2*testTick, "x") != self
		}, 2, 2 * testTick},
		"schedule one turn ahead, into the slot being drained": {func(w *Wheel[string], _, _ Handle) bool {
			return w.Schedule(65*testTick, "x") != 0
		}, 2, 65 * testTick},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWheel(t)
			h := map[string]Handle{"0": w.Schedule(testTick, "0"), "1": w.Schedule(testTick, "1")}
			other := map[string]string{"0": "1", "1": "0"}
			fired := 0
			w.Advance(testTick, math.MaxInt, func(self Handle, p string) {
				require.Equal(t, h[p], self)
				if fired++; fired == 1 {
					require.True(t, tc.act(w, self, h[other[p]]))
				}
			})
			require.Equal(t, tc.fired, fired)
			if tc.later > 0 {
				require.Empty(t, advance(t, w, tc.later-1))
				require.Len(t, advance(t, w, tc.later), 1)
			}
			check(t, w, 0)
			require.Zero(t, w.Len())
		})
	}
	w := newTestWheel(t)
	w.Schedule(0, "x")
	fired := 0
	w.Advance(100*testTick, math.MaxInt, func(h Handle, _ string) {
		fired++
		w.Reschedule(h, 0)
	})
	require.LessOrEqual(t, fired, 100, "it is due once in a tick, not for ever")
	check(t, w, 0)
	require.PanicsWithValue(t, "wheel: Advance called from an expiry callback", func() {
		w.Advance(101*testTick, math.MaxInt, func(Handle, string) { w.Advance(102*testTick, math.MaxInt, nil) })
	})
}

func TestCancelledEntriesLeaveNothingBehind(t *testing.T) {
	w := newTestWheel(t)
	var handles []Handle
	for i := range 10_000 {
		handles = append(handles, w.Schedule(time.Duration(i*i)*testTick/7, "x"))
	}
	used := w.used
	for range 3 {
		rand.Shuffle(len(handles), func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
		for _, h := range handles {
			require.True(t, w.Cancel(h))
		}
		check(t, w, 0)
		_, ok := w.NextDue()
		require.False(t, ok, "nothing wakes the driver")
		require.Empty(t, collect(w))
		n, more := w.Advance(time.Second, 0, nil)
		require.Zero(t, n)
		require.False(t, more)
		for i := range handles {
			handles[i] = w.Schedule(time.Duration(i)*time.Minute, "x")
		}
		require.Equal(t, used, w.used, "places are used again, whatever the deadline")
	}
}

func TestNoOperationAllocates(t *testing.T) {
	w, err := New[uint64](testTick)
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
			w.Reschedule(h, now+time.Duration(i%70)*testTick) // some later, some earlier
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
