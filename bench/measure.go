package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

const (
	tick  = 10 * time.Millisecond // of all subjects with a tick
	batch = 256                   // operations between two steps

	pending  = time.Minute      // least delay of timers that stay pending; the longest is twice that
	patience = 20 * time.Second // after which a timer that has not expired never will
)

// A load is what each subject gets.
type load struct {
	n      int           // number of timers
	passes int           // for each operation
	expiry time.Duration // the shortest delay of timers that expire; the longest is twice that
}

// delay returns the delay of timer i, from least to twice that. Those of neighbours are far apart.
func delay(least time.Duration, i int) time.Duration {
	return least + time.Duration(i*7919%100_003)*least/100_003
}

// measure returns the figures of one kind in one round. If Netty is not installed, it has none.
func measure(k kind, l load) (rounds.Figures, error) {
	f := rounds.Figures{}
	if k.vm != nil {
		return f, k.vm.Ask(fmt.Sprint(l.n, l.passes, int64(l.expiry)), &f)
	}
	if k.new == nil {
		return f, nil
	}
	measureOperations(k, l, f)
	measureTouch(k, l, f)
	return f, measureExpiry(k, l, f)
}

// measureOperations schedules, moves and cancels all timers. Each operation has a random order of
// its own, which is not that of the timers in memory.
func measureOperations(k kind, l load, f rounds.Figures) {
	before := process.HeapBytes()
	s := k.new(config{n: l.n})
	defer s.close()
	for pass := range l.passes {
		f["schedule"] += schedule(s, l)
		if pass == 0 {
			f["memory"] = float64(process.HeapBytes()-before) / float64(l.n)
		}
		f["reschedule"] += each(s, l, rand.Perm(l.n), func(i int) { s.reschedule(i, delay(pending, i+pass+1)) })
		f["cancel"] += each(s, l, rand.Perm(l.n), s.cancel)
	}
}

// measureTouch touches all timers.
func measureTouch(k kind, l load, f rounds.Figures) {
	s := k.new(config{n: l.n, timeout: 2 * pending})
	defer s.close()
	schedule(s, l)
	for range l.passes {
		f["touch"] += each(s, l, rand.Perm(l.n), func(i int) { s.reschedule(i, 2*pending) })
	}
}

// schedule starts the timers in order, and returns what each returns.
func schedule(s subject, l load) float64 {
	order := make([]int, l.n)
	for i := range order {
		order[i] = i
	}
	return each(s, l, order, func(i int) { s.schedule(i, delay(pending, i)) })
}

// each calls an operation for each index. It returns the nanoseconds of one, divided by the passes.
func each(s subject, l load, order []int, operation func(i int)) float64 {
	runtime.GC()
	began := time.Now()
	for part := range slices.Chunk(order, batch) {
		s.step()
		for _, i := range part {
			operation(i)
		}
	}
	return float64(time.Since(began)) / float64(len(order)*l.passes)
}

// measureExpiry lets all timers expire by the real clock. It measures the processor time from the
// last call of schedule to the last call of fire.
func measureExpiry(k kind, l load, f rounds.Figures) error {
	n := l.n
	var fired, early atomic.Int64
	deadlines := make([]time.Duration, n)
	origin := time.Now()
	s := k.new(config{n: n, fire: func(i int) {
		if time.Since(origin) < deadlines[i] {
			early.Add(1)
		}
		fired.Add(1)
	}})
	defer s.close()
	runtime.GC()
	for i := range n {
		d := delay(l.expiry, i)
		deadlines[i] = time.Since(origin) + d
		s.step() // a wheel counts the delay from this later time
		s.schedule(i, d)
	}
	used, already := process.CPU(), fired.Load()
	for giveUp := time.Now().Add(patience); fired.Load() < int64(n); time.Sleep(tick) {
		if time.Now().After(giveUp) {
			return fmt.Errorf("%d of %d timers have not expired", int64(n)-fired.Load(), n)
		}
		s.step()
	}
	f["expire"] = float64(process.CPU()-used) / float64(max(1, int64(n)-already))
	f["early"] = 100 * float64(early.Load()) / float64(n)
	return nil
}
