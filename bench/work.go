package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// The works. A name that ends in -2 is the same with two producers.
const (
	workReplace     = "replace"
	workReplace2    = "replace-2"
	workInstant     = "instant"
	workInstant2    = "instant-2"
	workReschedule  = "reschedule"
	workReschedule2 = "reschedule-2"
	workMove        = "move"
	workMove2       = "move-2"
	workFire        = "advance-fire"
	workRefile      = "advance-refile"
	workExpiry      = "expiry"
	workMemory      = "memory"
	workHold        = "hold"
	workHeartbeat   = "heartbeat"
)

// A work is a load that each suitable subject gets, in a process of its own.
type work struct {
	name      string
	producers int
	sizes     []int // numbers of pending timers
	virtual   bool  // in virtual time: for driven subjects only
	moves     bool  // reschedules
	run       func(job, candidate) (metrics, error)
}

// metrics are the results of one run, by name.
type metrics map[string]float64

// works returns all works in order. Quick ones have a tenth of the size and only check that
// everything works.
func works(quick bool) []work {
	sizes, large, heartbeats := []int{10_000, 100_000, 1_000_000}, []int{1_000_000}, []int{100_000}
	if quick {
		sizes, large, heartbeats = []int{1_000}, []int{10_000}, []int{10_000}
	}
	return []work{
		{name: workReplace, producers: 1, sizes: sizes, run: runOperations},
		{name: workReplace2, producers: 2, sizes: sizes, run: runOperations},
		{name: workInstant, producers: 1, sizes: sizes, run: runOperations},
		{name: workInstant2, producers: 2, sizes: sizes, run: runOperations},
		{name: workReschedule, producers: 1, sizes: sizes, run: runOperations, moves: true},
		{name: workReschedule2, producers: 2, sizes: sizes, run: runOperations, moves: true},
		{name: workMove, producers: 1, sizes: sizes, run: runOperations, moves: true},
		{name: workMove2, producers: 2, sizes: sizes, run: runOperations, moves: true},
		{name: workFire, producers: 1, sizes: sizes, run: runAdvance, virtual: true},
		{name: workRefile, producers: 1, sizes: sizes, run: runAdvance, virtual: true},
		{name: workExpiry, producers: 1, sizes: sizes, run: runExpiry},
		{name: workMemory, producers: 1, sizes: large, run: runMemory},
		{name: workHold, producers: 1, sizes: large, run: runHold},
		{name: workHeartbeat, producers: 1, sizes: heartbeats, run: runHeartbeat, moves: true},
	}
}

func findWork(name string) (work, bool) {
	all := works(false)
	i := slices.IndexFunc(all, func(w work) bool { return w.name == name })
	if i < 0 {
		return work{}, false
	}
	return all[i], true
}

const (
	minTimeout = 60 * time.Second // of timers that stay pending
	maxTimeout = 120 * time.Second

	batch = 256 // operations between two readings of the clock
)

// delayTable returns a power of two of random timeouts, equal for all subjects.
func delayTable(j job, low, high time.Duration) []time.Duration {
	r := j.random(1)
	table := make([]time.Duration, 1<<16)
	for i := range table {
		table[i] = low + time.Duration(r.Int64N(int64(high-low)))
	}
	return table
}

// clock returns a function that returns the time since now.
func clock() func() time.Duration {
	origin := time.Now()
	return func() time.Duration { return time.Since(origin) }
}

// fill starts the timers 0 to n-1.
func fill(s subject, n int, now func() time.Duration, delays []time.Duration) {
	d, isDriven := s.(driven)
	for i := range n {
		if isDriven && i%batch == 0 {
			d.at(now())
			d.advance()
		}
		s.schedule(i, delays[i%len(delays)])
	}
}

// runOperations measures the wall time of one operation for a fixed time, with n timers pending. A
// warm-up before does the same operations.
func runOperations(j job, c candidate) (metrics, error) {
	w, _ := findWork(j.Work)
	delays := delayTable(j, minTimeout, maxTimeout)
	producers := makeProducers(j, w, delays)

	before := heapBytes()
	s, err := c.new(config{n: j.N + w.producers})
	if err != nil {
		return nil, err
	}
	defer s.close()
	now := clock()
	fill(s, j.N, now, delays)
	runtime.GC()
	time.Sleep(j.Settle)

	watch := time.AfterFunc(j.WarmUp+j.Measure+j.Patience, func() {
		exitStuck(fmt.Sprintf("operations have not returned %v after their end was due", j.Patience))
	})
	operate(producers, s, now, j.WarmUp)
	done, took := operate(producers, s, now, j.Measure)
	watch.Stop()

	result := metrics{"ns": float64(took) / float64(done), "operations": float64(done)}
	if w.name == workReplace {
		result["bytes_after"] = float64(heapBytes()-before) / float64(j.N)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(producers)
	return result, nil
}

// operate lets all producers do operations for a time. It returns their number and the time taken.
func operate(producers []*producer, s subject, now func() time.Duration, length time.Duration) (done int, took time.Duration) {
	var start, end sync.WaitGroup
	start.Add(1)
	for _, p := range producers {
		p.done = 0
		end.Go(func() {
			start.Wait()
			p.run(s, now, now()+length)
		})
	}
	began := now()
	start.Done()
	end.Wait()
	took = now() - began
	for _, p := range producers {
		done += p.done
	}
	return done, took
}

// A producer does operations on the timers that it owns, in a random order chosen in advance.
type producer struct {
	work   string
	order  []uint32
	delays []time.Duration
	spare  int // its index beyond the pending ones
	done   int
}

func makeProducers(j job, w work, delays []time.Duration) []*producer {
	var list []*producer
	share := j.N / w.producers
	for k := range w.producers {
		p := &producer{
			work:   w.name[:len(w.name)-2*(w.producers-1)],
			order:  make([]uint32, share),
			delays: delays,
			spare:  j.N + k,
		}
		for i, at := range j.random(uint64(2 + k)).Perm(share) {
			p.order[i] = uint32(k*share + at)
		}
		list = append(list, p)
	}
	return list
}

func (p *producer) run(s subject, now func() time.Duration, until time.Duration) {
	d, isDriven := s.(driven)
	next := 0
	for {
		t := now()
		if t >= until {
			return
		}
		if isDriven {
			d.at(t)
			d.advance()
		}
		for range batch {
			switch p.work {
			case workReplace:
				i := int(p.order[next])
				s.cancel(i)
				s.schedule(i, p.delays[(p.done+next)%len(p.delays)])
			case workInstant:
				s.schedule(p.spare, p.delays[next%len(p.delays)])
				s.cancel(p.spare)
			case workReschedule:
				s.reschedule(int(p.order[next]), maxTimeout) // later than any before, since time has passed
			case workMove:
				s.reschedule(int(p.order[next]), p.delays[(p.done+next)%len(p.delays)])
			}
			if next++; next == len(p.order) {
				next = 0
			}
		}
		p.done += batch
	}
}

// runAdvance measures the expiry of a driven subject in virtual time, one step per tick. All timers
// fire, or all were moved to a later deadline and are filed again.
func runAdvance(j job, c candidate) (metrics, error) {
	delays := delayTable(j, minTimeout, maxTimeout)
	var took time.Duration
	var rounds int
	for took < j.Measure {
		var fired int
		made, err := c.new(config{n: j.N, fire: func(int) { fired++ }})
		if err != nil {
			return nil, err
		}
		s, ok := made.(driven)
		if !ok {
			return nil, fmt.Errorf("%s cannot be driven", c.name)
		}
		s.at(0)
		for i := range j.N {
			s.schedule(i, delays[i%len(delays)])
		}
		want := j.N
		if j.Work == workRefile {
			want = 0
			for _, i := range j.random(2).Perm(j.N) {
				s.reschedule(i, 2*maxTimeout)
			}
		}
		runtime.GC()
		began := time.Now()
		for now := time.Duration(0); now <= maxTimeout+tick; now += tick {
			s.at(now)
			s.advance()
		}
		took += time.Since(began)
		rounds++
		s.close()
		if fired != want {
			return nil, fmt.Errorf("%d timers fired instead of %d", fired, want)
		}
	}
	return metrics{"ns": float64(took) / float64(rounds) / float64(j.N)}, nil
}
