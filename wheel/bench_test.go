package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
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
