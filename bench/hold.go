package main

import (
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// heapBytes returns the bytes in use on heap and stacks after a garbage collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // collects objects with finalizers, and sweeps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// processCPU returns the processor time that this process has used, user and system.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runMemory measures the bytes of a pending timer, including the handle that its user keeps.
func runMemory(j job, c candidate) (metrics, error) {
	delays := delayTable(j, minTimeout, maxTimeout)
	before := heapBytes()
	s, err := c.new(config{n: j.N})
	if err != nil {
		return nil, err
	}
	defer s.close()
	fill(s, j.N, clock(), delays)
	time.Sleep(j.Settle)
	bytes := float64(heapBytes()-before) / float64(j.N)
	runtime.KeepAlive(s)
	runtime.KeepAlive(delays)
	return metrics{"bytes": bytes}, nil
}

// runHold measures the processor time of a process with timers that are not due.
func runHold(j job, c candidate) (metrics, error) {
	delays := delayTable(j, minTimeout, maxTimeout)
	s, err := c.new(config{n: j.N})
	if err != nil {
		return nil, err
	}
	defer s.close()
	now := clock()
	fill(s, j.N, now, delays)
	debug.FreeOSMemory() // also collects, and leaves no work for the background scavenger
	drive(s, now, now()+j.Settle)

	began, used := now(), processCPU()
	drive(s, now, began+j.Hold)
	took := now() - began
	return metrics{"cpu_ms_per_s": (processCPU() - used).Seconds() * 1000 / took.Seconds()}, nil
}

// drive lets time pass and advances a driven subject when a timer is due.
func drive(s subject, now func() time.Duration, until time.Duration) {
	d, ok := s.(driven)
	if !ok {
		time.Sleep(until - now())
		return
	}
	for now() < until {
		time.Sleep(min(d.due(), until) - now())
		d.at(now())
		d.advance()
	}
}
