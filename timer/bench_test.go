package timer

import (
	"math/rand/v2"
	"testing"
	"time"
)

// pending is the number of Timeouts, or others, that are pending in a benchmark.
const pending = 100_000

// A stopper is a Timeout or a time.Timer.
type stopper interface {
	Stop() bool
	Reset(time.Duration) bool
}

// BenchmarkStop compares AfterFunc and Stop with those of package time: instant stops the timeout
// that was just made, replace a random one, and reset moves a random one. The program in bench/
// compares them with other timers as well, in turns.
func BenchmarkStop(b *testing.B) {
	timer := newTestTimer(b, Config{})
	benchmarkStop(b, "timer", func(d time.Duration) *Timeout {
		t, _ := timer.AfterFunc(d, nothing)
		return t
	})
	benchmarkStop(b, "time", func(d time.Duration) *time.Timer { return time.AfterFunc(d, nothing) })
}

func benchmarkStop[T stopper](b *testing.B, facility string, start func(time.Duration) T) {
	all, delays, order := make([]T, pending), make([]time.Duration, pending), rand.Perm(pending)
	for i := range all {
		delays[i] = time.Minute + rand.N(time.Minute)
		all[i] = start(delays[i])
	}
	run := func(op string, do func(i int, d time.Duration)) {
		b.Run(op+"/"+facility, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				do(order[n%pending], delays[n%pending])
			}
		})
	}
	run("instant", func(_ int, d time.Duration) { start(d).Stop() })
	run("replace", func(i int, d time.Duration) { all[i].Stop(); all[i] = start(d) })
	run("reset", func(i int, d time.Duration) { all[i].Reset(d) })
	for _, t := range all {
		t.Stop()
	}
}

// BenchmarkTouch compares Touch of a random Idle with Reset of a random time.Timer. Both include
// all that runs meanwhile: for Touch the looks of the Timer.
func BenchmarkTouch(b *testing.B) {
	timer := newTestTimer(b, Config{})
	idles, timers, order := make([]*Idle, pending), make([]*time.Timer, pending), rand.Perm(pending)
	for _, i := range rand.Perm(pending) { // neighbours in memory are far apart in the order of calls
		idles[i] = idle(b, timer, time.Minute, nothing)
		timers[i] = time.AfterFunc(time.Minute, nothing)
	}
	b.Run("Touch", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			idles[order[n%pending]].Touch()
		}
	})
	b.Run("Reset", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			timers[order[n%pending]].Reset(time.Minute)
		}
	})
	for i := range pending {
		idles[i].Stop()
		timers[i].Stop()
	}
}
