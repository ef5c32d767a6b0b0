package timer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// rounds is the number of rounds in which the contestants take turns. A figure is the median of the
// rounds, and a ratio the median of the ratios of each round.
const rounds = 9

// A contestant is a timer facility. Index i names one timeout.
type contestant struct {
	name  string
	start func(i int, d time.Duration)
	stop  func(i int)
	reset func(i int, d time.Duration)
}

func contestants(b *testing.B, n int) []contestant {
	timer := newTestTimer(b, Config{})
	own, std := make([]*Timeout, n), make([]*time.Timer, n)
	return []contestant{{
		name:  "timer",
		start: func(i int, d time.Duration) { own[i], _ = timer.AfterFunc(d, nothing) },
		stop:  func(i int) { own[i].Stop() },
		reset: func(i int, d time.Duration) { own[i].Reset(d) },
	}, {
		name:  "AfterFunc",
		start: func(i int, d time.Duration) { std[i] = time.AfterFunc(d, nothing) },
		stop:  func(i int) { std[i].Stop() },
		reset: func(i int, d time.Duration) { std[i].Reset(d) },
	}}
}

// BenchmarkStop compares AfterFunc and Stop with those of package time, while n timeouts are
// pending: instant stops the timeout that was just made, replace a random one, and reset moves a
// random one. Each producer has a share of the n. The program in bench/ compares them with other
// timers.
func BenchmarkStop(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, n := range sizes {
		delays := make([]time.Duration, 1<<12)
		for i := range delays {
			delays[i] = time.Minute + time.Duration(rand.Int64N(int64(time.Minute)))
		}
		order := rand.Perm(n)
		ops := map[string]func(c contestant, i, j int){
			"instant": func(c contestant, i, j int) { c.stop(n + i%2); c.start(n+i%2, delays[j%len(delays)]) },
			"replace": func(c contestant, i, j int) { c.stop(order[i]); c.start(order[i], delays[j%len(delays)]) },
			"reset":   func(c contestant, i, j int) { c.reset(order[i], delays[j%len(delays)]) },
		}
		all := contestants(b, n+2)
		for _, c := range all {
			for i := range n + 2 {
				c.start(i, delays[i%len(delays)])
			}
		}
		for _, op := range []string{"instant", "replace", "reset"} {
			for _, producers := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/n=%d/producers=%d", op, n, producers), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(producers, runtime.GOMAXPROCS(0))))
					do := ops[op]
					compare(b, all, func(c contestant) time.Duration {
						return produce(producers, n, func(i, j int) { do(c, i, j) })
					})
				})
			}
		}
		for _, c := range all {
			for i := range n + 2 {
				c.stop(i)
			}
		}
	}
}

// produce calls op on some goroutines and returns the time per call. In each goroutine, i are
// indices of its own, and j counts the calls.
func produce(producers, n int, op func(i, j int)) time.Duration {
	const calls = 100_000
	runtime.GC()
	var all sync.WaitGroup
	began := time.Now()
	for p := range producers {
		all.Go(func() {
			for j := range calls {
				op(j*producers%(n/producers*producers)+p, j)
			}
		})
	}
	all.Wait()
	return time.Since(began) / time.Duration(calls*producers)
}

// compare lets the contestants take turns and reports their times, and for each of the others the
// ratio of its time to that of the first, with the least and greatest ratio of a round.
func compare(b *testing.B, all []contestant, measure func(contestant) time.Duration) {
	took := make([][]float64, len(all))
	for b.Loop() {
		for round := range rounds + 1 {
			for turn := range all {
				k := (turn + round) % len(all)
				if d := measure(all[k]); round > 0 { // the first round is a warm-up
					took[k] = append(took[k], float64(d))
				}
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for k, c := range all {
		ratios := make([]float64, len(took[k]))
		for i, d := range took[k] {
			ratios[i] = d / took[0][i]
		}
		b.ReportMetric(median(took[k]), c.name+"-ns")
		if k > 0 {
			b.ReportMetric(median(ratios), c.name+"-ratio")
			b.ReportMetric(slices.Min(ratios), c.name+"-least")
			b.ReportMetric(slices.Max(ratios), c.name+"-most")
		}
	}
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
