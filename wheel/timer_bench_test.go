package wheel

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A facility is a timer facility in the benchmark.
type facility[H any] struct {
	schedule func(delay time.Duration) H
	cancel   func(H)
	reset    func(H, time.Duration)
}

// BenchmarkTimer compares a Timer with the timers of the runtime, as a server uses them: replace
// cancels a random one of n pending timeouts and schedules another, instant cancels the timeout
// that was just scheduled, and reset is a heartbeat of a random one. Each producer has a share of
// the n.
func BenchmarkTimer(b *testing.B) {
	for _, n := range []int{1, 10_000, 100_000, 1_000_000} {
		for _, producers := range []int{1, 2} {
			name := fmt.Sprintf("n=%d/producers=%d/timer=", n, producers)
			b.Run(name+"wheel", func(b *testing.B) {
				timer := newTestTimer(b, TimerConfig{})
				var task Task = TaskFunc(nothing)
				benchFacility(b, n, producers, facility[*Timeout]{
					schedule: func(delay time.Duration) *Timeout {
						t, err := timer.NewTimeout(task, delay)
						if err != nil {
							panic(err)
						}
						return t
					},
					cancel: func(t *Timeout) { t.Cancel() },
					reset:  func(t *Timeout, delay time.Duration) { t.Reset(delay) },
				})
			})
			b.Run(name+"AfterFunc", func(b *testing.B) {
				benchFacility(b, n, producers, facility[*time.Timer]{
					schedule: func(delay time.Duration) *time.Timer { return time.AfterFunc(delay, func() {}) },
					cancel:   func(t *time.Timer) { t.Stop() },
					reset:    func(t *time.Timer, delay time.Duration) { t.Reset(delay) },
				})
			})
		}
	}
}

func benchFacility[H any](b *testing.B, n, producers int, f facility[H]) {
	delays := make([]time.Duration, 1<<14)
	for i := range delays {
		delays[i] = time.Minute + time.Duration(rand.Int64N(int64(time.Minute)))
	}
	handles, order := make([]H, n), make([]int, n)
	for i, at := range rand.Perm(n) {
		handles[i], order[i] = f.schedule(delays[i%len(delays)]), at
	}
	defer func() {
		for _, h := range handles {
			f.cancel(h)
		}
	}()
	each := func(b *testing.B, name string, do func(i int)) {
		b.Run("op="+name, func(b *testing.B) {
			runtime.GC()
			b.ReportAllocs()
			if producers == 1 {
				for i := 0; b.Loop(); i++ {
					do(i)
				}
				return
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(producers))
			var started atomic.Int64
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				share := max(n/producers, 1)
				first := int(started.Add(1)-1) * share
				for i := 0; pb.Next(); i++ {
					do(first + i%share)
				}
			})
		})
	}
	each(b, "instant", func(i int) { f.cancel(f.schedule(delays[i%len(delays)])) })
	if n == 1 {
		return
	}
	each(b, "replace", func(i int) {
		at := order[i%n]
		f.cancel(handles[at])
		handles[at] = f.schedule(delays[i%len(delays)])
	})
	each(b, "reset", func(i int) { f.reset(handles[order[i%n]], 2*time.Minute) })
}
