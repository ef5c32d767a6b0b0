package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

const (
	benchTick    = 10 * time.Millisecond // that of package timer
	benchTimeout = 60 * time.Second
)

var benchSizes = []int{10_000, 100_000, 1_000_000}

// fill adds n entries in random order, due in random order over one timeout from now.
func fill(b *testing.B, n int) (w *Wheel[uint32], handles []Handle) {
	w, err := New[uint32](benchTick)
	if err != nil {
		b.Fatal(err)
	}
	handles = make([]Handle, n)
	due := rand.Perm(n)
	for _, i := range rand.Perm(n) {
		handles[i] = w.Schedule(benchTimeout*time.Duration(due[i]+1)/time.Duration(n), uint32(i))
	}
	return w, handles
}

// BenchmarkWheel times the operations on entries in random order.
func BenchmarkWheel(b *testing.B) {
	for _, n := range benchSizes {
		run := func(op string, f func(b *testing.B)) { b.Run(fmt.Sprintf("op=%s/n=%d", op, n), f) }
		run("cancel+schedule", func(b *testing.B) {
			w, handles := fill(b, n)
			b.ResetTimer()
			for k := range b.N {
				i := k % n
				w.Cancel(handles[i])
				handles[i] = w.Schedule(benchTimeout*time.Duration(k%1000)/1000, uint32(i))
			}
		})
		run("expire", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				w, _ := fill(b, n)
				b.StartTimer()
				if expired, _ := w.Advance(benchTimeout, math.MaxInt, func(Handle, uint32) {}); expired != n {
					b.Fatalf("%d of %d expired", expired, n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
		})
		run("deadlines", func(b *testing.B) { // what a page that shows the wheel costs
			w, _ := fill(b, n)
			sum := time.Duration(0)
			for b.Loop() {
				for d := range w.Deadlines() {
					sum += d
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/entry")
		})
	}
}

// BenchmarkNothingDue times a wake-up of a driver: NextDue, and an Advance that finds nothing.
func BenchmarkNothingDue(b *testing.B) {
	w, err := New[uint32](1)
	if err != nil {
		b.Fatal(err)
	}
	w.Schedule(math.MaxInt64/2, 0)
	for now := time.Duration(0); b.Loop(); now++ {
		w.NextDue()
		w.Advance(now, math.MaxInt, nil)
	}
}

// BenchmarkMoves times Reschedule of a Wheel and Reset of a time.Timer in turns, on random entries.
// It reports the median and the spread of the ratios of the rounds. Nine rounds: -benchtime 9x.
//
// The caller finds the Handle or the Timer by its index. With clock=read it reads the clock for
// each move, as time.Timer does; with clock=coarse it loads an instant that another goroutine
// stores, as the loops of package idle do. With time=runs, each entry is moved four times per
// timeout, and the measured time includes the work that a Wheel has put off: it files entries again
// and expires some.
func BenchmarkMoves(b *testing.B) {
	sizes := []int{100_000, 1_000_000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		for _, c := range []struct {
			name  string
			moves benchMoves
		}{
			{"moves=later/clock=coarse/time=still", benchMoves{coarse: true}},
			{"moves=later/clock=coarse/time=runs", benchMoves{coarse: true, runs: true}},
			{"moves=later/clock=read/time=still", benchMoves{}},
			{"moves=both/clock=read/time=still", benchMoves{both: true}},
			{"moves=both/clock=read/time=runs", benchMoves{both: true, runs: true}},
		} {
			b.Run(fmt.Sprintf("%s/n=%d", c.name, n), func(b *testing.B) { c.moves.run(b, n) })
		}
	}
}

type benchMoves struct{ both, coarse, runs bool }

// benchRound is the number of moves in a round.
const benchRound = 1_000_000

func (m benchMoves) run(b *testing.B, n int) {
	ours, theirs := m.ours(b, n), m.theirs(b, n)
	for range 1 + 8*n/benchRound { // until the entries lie where repeated moves bring them
		ours()
	}
	theirs()
	var costs, ratios []float64
	for b.Loop() {
		began := time.Now()
		ours()
		ended := time.Now()
		theirs()
		cost := ended.Sub(began)
		costs = append(costs, float64(cost)/benchRound)
		ratios = append(ratios, float64(time.Since(ended))/float64(cost))
	}
	slices.Sort(costs)
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(costs[len(costs)/2], "ns/move")
	b.ReportMetric(ratios[len(ratios)/2], "x-median")
	b.ReportMetric(ratios[0], "x-min")
	b.ReportMetric(ratios[len(ratios)-1], "x-max")
}

// A benchMove is the index of an entry, and a timeout. The index has 32 bits so that reading the
// moves costs little.
type benchMove struct {
	i       uint32
	timeout uint32 // milliseconds
}

func (m benchMoves) moves(n int) []benchMove {
	moves := make([]benchMove, benchRound)
	order := rand.Perm(n)
	for k := range moves {
		moves[k] = benchMove{uint32(order[k%n]), uint32(benchTimeout.Milliseconds())}
		if m.both {
			moves[k].timeout += uint32(rand.IntN(60_000))
		}
	}
	return moves
}

var (
	benchOrigin = time.Now()
	benchClock  atomic.Int64
)

// ours returns a round of a Wheel. The clock that the caller reads is not the time of the Wheel,
// which is computed instead, so that timeouts pass within a round.
func (m benchMoves) ours(b *testing.B, n int) func() {
	w, handles := fill(b, n)
	moves := m.moves(n)
	now, step := time.Duration(0), time.Duration(1)
	if m.runs {
		step = benchTimeout / 4 / time.Duration(n)
	}
	expire := func(h Handle, _ uint32) { w.Reschedule(h, now+benchTimeout) }
	read := func() { time.Since(benchOrigin) }
	if m.coarse {
		read = func() { benchClock.Load() }
	}
	return func() {
		for _, move := range moves {
			read()
			if now += step; now%benchTick < step {
				w.Advance(now, math.MaxInt, expire)
			}
			w.Reschedule(handles[move.i], now+time.Duration(move.timeout)*time.Millisecond)
		}
	}
}

// theirs returns a round of time.Timer. The timeouts are an hour longer, so that none expires.
func (m benchMoves) theirs(b *testing.B, n int) func() {
	timers := make([]*time.Timer, n)
	for _, i := range rand.Perm(n) {
		timers[i] = time.AfterFunc(time.Hour+rand.N(benchTimeout), func() {})
	}
	b.Cleanup(func() {
		for _, t := range timers {
			t.Stop()
		}
	})
	moves := m.moves(n)
	return func() {
		for _, move := range moves {
			timers[move.i].Reset(time.Hour + time.Duration(move.timeout)*time.Millisecond)
		}
	}
}
