package main

import (
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	step = 10 * time.Millisecond // interval of the loop that makes the heartbeats
	// One part of the connections has a heartbeat in each step: once a second.
	parts = 100
)

// heapBytes returns the bytes in use on heap and stacks after a garbage collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // collects objects with finalizers, and sweeps
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// residentBytes returns the resident memory of the process, 0 if unknown.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	words := strings.Fields(string(b))
	if err != nil || len(words) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// processCPU returns the processor time that this process has used, user and system.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot fail with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measureKeeper measures one keeper, without connections.
func measureKeeper(j job) (metrics, error) {
	m := metrics{}
	order := make([]uint32, j.N)
	for at, i := range rand.New(rand.NewPCG(1, 2)).Perm(j.N) {
		order[at] = uint32(i)
	}
	if err := measureIdling(j, order, m); err != nil {
		return nil, err
	}
	if j.Subject == harness { // it has no keeper
		delete(m, "bytes")
		delete(m, "touch_ns")
	}
	return m, measureHeartbeats(j, order, m)
}

// measureIdling measures memory, a touch, and the processor time while no connection is due.
func measureIdling(j job, order []uint32, m metrics) error {
	before := heapBytes()
	k, err := newKeeper(j.Subject, keeperConfig{n: j.N, timeout: time.Minute, expire: func(int) {}})
	if err != nil {
		return err
	}
	defer k.close()
	for i := range j.N {
		k.open(i)
	}
	m["bytes"] = float64(heapBytes()-before) / float64(j.N)

	var touched, next int
	began := time.Now()
	for time.Since(began) < j.Touch {
		for range 256 {
			k.touch(int(order[next]))
			if next++; next == len(order) {
				next = 0
			}
		}
		touched += 256
	}
	m["touch_ns"] = float64(time.Since(began)) / float64(max(touched, 1))

	debug.FreeOSMemory() // also collects, and leaves no work for the background scavenger
	time.Sleep(tick)
	used := processCPU()
	began = time.Now()
	for time.Since(began) < j.Hold {
		time.Sleep(tick)
		k.step()
	}
	m["hold_ms_per_s"] = float64(processCPU()-used) / float64(time.Millisecond) / time.Since(began).Seconds()
	return nil
}

// measureHeartbeats measures the cost of a heartbeat with deferred work, and the lateness with
// which silent connections are found.
func measureHeartbeats(j job, order []uint32, m metrics) error {
	origin := time.Now()
	heard := make([]atomic.Int64, j.N) // exactly, since origin
	late := make([]atomic.Int64, j.N)
	var found, early atomic.Int64
	k, err := newKeeper(j.Subject, keeperConfig{n: j.N, timeout: j.Timeout, expire: func(i int) {
		d := int64(time.Since(origin)-j.Timeout) - heard[i].Load()
		if d < 0 {
			early.Add(1)
		}
		late[i].Store(d)
		found.Add(1)
	}})
	if err != nil {
		return err
	}
	defer k.close()
	send := func(from, to int, do func(i int)) {
		now := int64(time.Since(origin))
		for _, i := range order[from:to] {
			heard[i].Store(now)
			do(int(i))
		}
	}
	for from := 0; from < j.N; from += 256 { // in batches, so that the recorded times are exact
		send(from, min(from+256, j.N), k.open)
	}
	debug.FreeOSMemory()

	share := j.N / parts
	steps := int(j.Heartbeat / step)
	began, used := time.Now(), processCPU()
	for s := range steps {
		time.Sleep(time.Duration(s)*step - time.Since(began))
		if s%int(tick/step) == 0 {
			k.step()
		}
		send(s%parts*share, s%parts*share+share, k.touch)
	}
	time.Sleep(time.Duration(steps)*step - time.Since(began))
	m["heartbeat_ns"] = float64(processCPU()-used) / float64(steps*share)
	if j.Subject == harness {
		return nil
	}

	giveUp := time.Now().Add(j.Timeout + 10*time.Second)
	for found.Load() < int64(j.N) && time.Now().Before(giveUp) {
		time.Sleep(tick)
		k.step()
	}
	m["lost"], m["early"] = float64(int64(j.N)-found.Load()), float64(early.Load())
	all := make([]time.Duration, j.N)
	for i := range late {
		all[i] = time.Duration(late[i].Load())
	}
	lateness(all, m)
	return nil
}

// lateness adds the metrics about lateness.
func lateness(all []time.Duration, m metrics) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))]) / float64(time.Millisecond)
	}
	m["late_p50_ms"], m["late_p99_ms"], m["late_max_ms"] = at(0.5), at(0.99), at(1)
}
