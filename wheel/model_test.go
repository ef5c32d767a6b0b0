package wheel

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// model is a map of deadlines.
type model struct {
	tick    time.Duration
	clock   time.Duration
	cursor  func() time.Duration // of the wheel
	pending map[int]modelEntry
}

type modelEntry struct {
	earliest, latest time.Duration // multiples of the tick between which it must fire
	// The ticks of its slot, which is the next one for a passed deadline.
	first, last time.Duration
}

// floor is the last multiple of the tick that the clock has reached.
func (m *model) floor() time.Duration { return m.clock / m.tick * m.tick }

func (m *model) schedule(id int, deadline time.Duration) {
	due := (max(deadline, 0) + m.tick - 1) / m.tick * m.tick
	m.pending[id] = modelEntry{earliest: due, latest: max(due, m.floor()+m.tick),
		first: max(due, m.cursor()), last: max(due, m.cursor()+m.tick)}
}

// play runs the operations that data encodes on a Wheel and on the model, and compares them at each
// step. Callbacks run operations of their own.
func play(t testing.TB, data []byte) {
	const tick = 10 * time.Millisecond
	w, err := New[int](tick, 16)
	require.NoError(t, err)
	m := &model{tick: tick, pending: map[int]modelEntry{}}
	m.cursor = func() time.Duration { return time.Duration(w.cursor) * tick }
	handles := map[int]Handle{}
	var stale []Handle
	next := 0
	reached := time.Duration(0)

	take := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	bursts := take()%16 == 0 // makes the test slow, since there is more to check
	someDeadline := func() time.Duration {
		switch b := take(); {
		case b < 16:
			return m.clock - time.Duration(b)*tick // has passed
		case b < 20:
			return m.clock + time.Duration(take()+1)<<(30+6*(b-16)) // up to two years
		case b < 32:
			return m.clock + time.Duration(b)*tick*100 // many turns
		default:
			return m.clock + time.Duration(b)*3*time.Millisecond
		}
	}
	somePending := func() (int, bool) {
		if len(m.pending) == 0 {
			return 0, false
		}
		ids := make([]int, 0, len(m.pending))
		for id := range m.pending {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids[take()%len(ids)], true
	}
	operate := func(op int) {
		switch op % 7 {
		case 0, 1:
			d := someDeadline()
			handles[next] = w.Schedule(d, next)
			m.schedule(next, d)
			next++
		case 2:
			if id, ok := somePending(); ok {
				d := someDeadline()
				h := w.Reschedule(handles[id], d)
				require.NotZero(t, h, "a pending entry can be rescheduled")
				if h != handles[id] {
					stale = append(stale, handles[id])
				}
				handles[id] = h
				m.schedule(id, d)
			}
		case 3:
			if id, ok := somePending(); ok {
				require.True(t, w.Cancel(handles[id]), "a pending entry can be cancelled")
				stale = append(stale, handles[id])
				delete(m.pending, id)
			}
		case 4:
			if len(stale) > 0 {
				h := stale[take()%len(stale)]
				require.False(t, w.Cancel(h), "a stale Handle cancels nothing")
				require.Zero(t, w.Reschedule(h, someDeadline()), "a stale Handle reschedules nothing")
			}
		case 5:
			w.Purge()
		case 6: // enough cancelled entries that slots are scanned for them
			if !bursts {
				break
			}
			var burst []Handle
			first, step := someDeadline(), time.Duration(take())*time.Millisecond
			for i := range deadSlack + 100 {
				burst = append(burst, w.Schedule(first+time.Duration(i)*step, -1))
			}
			for _, h := range burst {
				require.True(t, w.Cancel(h))
			}
			stale = append(stale, burst[0])
		}
	}

	for steps := 0; len(data) > 0 && steps < 2000; steps++ {
		switch op := take(); {
		case op < 160:
			operate(op)
		default:
			jump := time.Duration(take()) * time.Millisecond
			switch {
			case op > 254:
				jump *= 1_000_000 // days
			case op > 250:
				jump *= 50 // a stall of many turns
			}
			m.clock += jump
			budget := 1 + take()%8
			if op%2 == 0 {
				budget = 1 << 30
			}
			expire := func(h Handle, id int) {
				require.GreaterOrEqual(t, m.pending[id].last, reached, "entries come in the order of their ticks")
				reached = max(reached, m.pending[id].first)
				require.Contains(t, m.pending, id, "it fires once, and not after Cancel")
				require.Equal(t, handles[id], h)
				require.LessOrEqual(t, m.pending[id].earliest, m.floor(), "entry %d fired early", id)
				if take()%4 == 0 { // periodic
					d := someDeadline()
					require.Equal(t, h, w.Reschedule(h, d))
					m.schedule(id, d)
					return
				}
				delete(m.pending, id)
				if take()%2 == 0 {
					operate(take())
				}
				stale = append(stale, h) // when the callback has returned
			}
			if _, more := w.Advance(m.clock, budget, expire); !more {
				for id, e := range m.pending {
					if e.latest <= m.floor() {
						t.Fatalf("entry %d was due at %v, not later than %v", id, e.latest, m.floor())
					}
				}
			}
		}
		require.Equal(t, len(m.pending), w.Len())
		check(t, w, m.clock)
		if due, ok := w.NextDue(); ok {
			for id, e := range m.pending {
				if due > max(e.latest, m.clock) {
					t.Fatalf("entry %d is due at %v, before NextDue %v", id, e.latest, due)
				}
			}
		} else {
			require.Empty(t, m.pending)
		}
	}

	// At the end everything is due.
	for _, e := range m.pending {
		m.clock = max(m.clock, e.latest)
	}
	w.Advance(m.clock, 1<<30, func(h Handle, id int) {
		require.Contains(t, m.pending, id)
		delete(m.pending, id)
	})
	require.Empty(t, m.pending, "nothing is lost")
	check(t, w, m.clock)
}

func TestWheelAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range 100 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		data := make([]byte, 0, 2048)
		for len(data) < cap(data) {
			data = binary.LittleEndian.AppendUint64(data, rng.Uint64())
		}
		if !t.Run("", func(t *testing.T) { play(t, data) }) {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{0, 40, 0, 20, 170, 50, 0})
	f.Add([]byte{0, 10, 0, 10, 2, 0, 200, 3, 0, 255, 255, 1, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) { play(t, data) })
}
