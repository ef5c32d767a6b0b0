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
	benchTick    = 100 * time.Millisecond
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
		run("due+deadlines", func(b *testing.B) { // what a page that shows the wheel costs
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

// BenchmarkMoves times the Reschedule of a Wheel and the Reset of a time.Timer in turns, and reports
// the median and the spread of the ratios of the rounds. Nine rounds: -benchtime 9x.
//
// An entry is moved four times per timeout on average, and the wheel files entries again and expires
// them in the measured time. The time of the wheel is computed for that, as if moves came in evenly.
func BenchmarkMoves(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("moves=later/clock=coarse/n=%d", n), func(b *testing.B) {
			var coarse atomic.Int64
			benchMoves(b, n, func() time.Duration { return benchTimeout }, func() { coarse.Load() })
		})
		b.Run(fmt.Sprintf("moves=later/clock=read/n=%d", n), func(b *testing.B) {
			benchMoves(b, n, func() time.Duration { return benchTimeout }, readClock)
		})
		b.Run(fmt.Sprintf("moves=both/clock=read/n=%d", n), func(b *testing.B) {
			benchMoves(b, n, func() time.Duration { return benchTimeout/2 + rand.N(benchTimeout) }, readClock)
		})
	}
}

var benchOrigin = time.Now()

const moves = 1_000_000 // per round

func readClock() { time.Since(benchOrigin) }

func benchMoves(b *testing.B, n int, timeout func() time.Duration, readClock func()) {
	w, handles := fill(b, n)
	timers := make([]*time.Timer, n)
	for _, i := range rand.Perm(n) {
		timers[i] = time.AfterFunc(time.Hour+timeout(), func() {})
	}
	defer func() {
		for _, t := range timers {
			t.Stop()
		}
	}()

	type ourMove struct {
		h Handle
		d time.Duration
	}
	type theirMove struct {
		t *time.Timer
		d time.Duration
	}
	ourMoves, theirMoves := make([]ourMove, moves), make([]theirMove, moves)
	order := rand.Perm(n)
	for k := range ourMoves {
		i, d := order[k%n], timeout()
		ourMoves[k], theirMoves[k] = ourMove{handles[i], d}, theirMove{timers[i], time.Hour + d}
	}

	now, step := time.Duration(0), benchTimeout/4/time.Duration(n)
	expire := func(h Handle, _ uint32) { w.Reschedule(h, now+benchTimeout) }
	ours := func() {
		for _, m := range ourMoves {
			readClock()
			if now += step; now%benchTick < step {
				w.Advance(now, math.MaxInt, expire)
			}
			w.Reschedule(m.h, now+m.d)
		}
	}
	theirs := func() {
		for _, m := range theirMoves {
			m.t.Reset(m.d)
		}
	}

	ours() // time.Timer reaches its usual state within a round, a Wheel after several timeouts
	for range 8 * n / moves {
		ours()
	}
	theirs()
	var costs, ratios []float64
	for b.Loop() {
		began := time.Now()
		ours()
		ended := time.Now()
		theirs()
		cost := float64(ended.Sub(began)) / moves
		costs = append(costs, cost)
		ratios = append(ratios, float64(time.Since(ended))/moves/cost)
	}
	slices.Sort(costs)
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(costs[len(costs)/2], "ns/move")
	b.ReportMetric(ratios[len(ratios)/2], "x-median")
	b.ReportMetric(ratios[0], "x-min")
	b.ReportMetric(ratios[len(ratios)-1], "x-max")
}
