package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// An expected timer has the deadline that the callback compares with the time.
type expected struct {
	deadline time.Duration // the time just before the schedule call, plus the delay
	error    time.Duration // lateness of the first fire; negative means early
	fires    atomic.Int32
}

// runExpiry lets n timers fire by the real clock and measures their lateness and the processor
// time.
func runExpiry(j job, c candidate) (metrics, error) {
	delays := delayTable(j, j.ExpiryLow, j.ExpiryHigh)
	timers := make([]expected, j.N)
	now := clock()
	var fired atomic.Int64
	s, err := c.new(config{n: j.N, fire: func(i int) {
		t := &timers[i]
		if at := now(); t.fires.Add(1) == 1 {
			t.error = at - t.deadline
			fired.Add(1)
		}
	}})
	if err != nil {
		return nil, err
	}
	defer s.close()
	runtime.GC()

	d, isDriven := s.(driven)
	for i := range timers {
		t, delay := now(), delays[i%len(delays)]
		timers[i].deadline = t + delay
		if isDriven {
			d.at(t)
		}
		s.schedule(i, delay)
	}
	used, already := processCPU(), fired.Load()
	giveUp := now() + j.ExpiryHigh + j.Patience
	for fired.Load() < int64(j.N) && now() < giveUp {
		drive(s, now, now()+tick)
	}
	used = processCPU() - used
	counted := fired.Load()
	drive(s, now, now()+10*tick) // time to fire twice

	return expiryMetrics(timers, used, counted-already), nil
}

// expiryMetrics returns the metrics, given the processor time spent while the counted timers fired.
func expiryMetrics(timers []expected, used time.Duration, counted int64) metrics {
	var errors []time.Duration
	var early, lost, twice int
	for i := range timers {
		t := &timers[i]
		switch t.fires.Load() {
		case 0:
			lost++
			continue
		case 1:
		default:
			twice++
		}
		errors = append(errors, t.error)
		if t.error < 0 {
			early++
		}
	}
	result := metrics{"early": float64(early), "lost": float64(lost), "twice": float64(twice)}
	if len(errors) == 0 || counted == 0 {
		return result
	}
	slices.Sort(errors)
	at := func(share float64) float64 {
		return errors[int(share*float64(len(errors)-1))].Seconds() * 1000
	}
	result["early_percent"] = 100 * float64(early) / float64(len(errors))
	result["earliest_ms"], result["p50_ms"], result["p99_ms"], result["max_ms"] = at(0), at(0.5), at(0.99), at(1)
	result["cpu_ns"] = float64(used) / float64(counted)
	return result
}
