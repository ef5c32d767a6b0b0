package main

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// A heapTimer is the usual simple implementation: container/heap behind a lock, and one goroutine
// that sleeps until the earliest deadline and fires outside the lock.
type heapTimer struct {
	config
	origin  time.Time
	entries []*heapEntry
	touched func(i int) time.Duration // the deadline by the last touch, or 0

	wake chan struct{} // capacity 1; the earliest deadline has changed
	quit chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	pending deadlineHeap
}

// A heapEntry knows its place in the heap, so that it can be moved and removed there.
type heapEntry struct {
	deadline time.Duration // since the origin
	place    int           // -1 when in no heap
	i        int
}

func makeHeap(c config) *heapTimer {
	return &heapTimer{
		config: c, origin: time.Now(), entries: make([]*heapEntry, c.n), wake: make(chan struct{}, 1), quit: make(chan struct{}),
		touched: func(int) time.Duration { return 0 },
	}
}

func newHeap(c config) (subject, error) {
	s := makeHeap(c)
	s.done.Go(s.run)
	return s, nil
}

func (s *heapTimer) schedule(i int, d time.Duration) {
	e := &heapEntry{deadline: time.Since(s.origin) + d, i: i}
	s.entries[i] = e
	s.mu.Lock()
	heap.Push(&s.pending, e)
	s.unlock(e)
}

func (s *heapTimer) cancel(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[i]; e.place >= 0 {
		heap.Remove(&s.pending, e.place)
	}
}

func (s *heapTimer) reschedule(i int, d time.Duration) {
	e := s.entries[i]
	deadline := time.Since(s.origin) + d
	s.mu.Lock()
	if e.place >= 0 {
		e.deadline = deadline
		heap.Fix(&s.pending, e.place)
	}
	s.unlock(e)
}

// unlock wakes up the goroutine if the entry is the earliest now.
func (s *heapTimer) unlock(e *heapEntry) {
	first := e.place == 0
	s.mu.Unlock()
	if first {
		select {
		case s.wake <- struct{}{}:
		default: // a signal is already waiting
		}
	}
}

func (s *heapTimer) step() {}

func (s *heapTimer) close() {
	close(s.quit)
	s.done.Wait()
}

func (s *heapTimer) run() {
	sleep := time.NewTimer(time.Hour)
	defer sleep.Stop()
	for {
		sleep.Reset(s.fireDue())
		select {
		case <-sleep.C:
		case <-s.wake:
		case <-s.quit:
			return
		}
	}
}

// fireDue fires due timers and returns the time until the next deadline.
func (s *heapTimer) fireDue() time.Duration {
	for {
		s.mu.Lock()
		if len(s.pending) == 0 {
			s.mu.Unlock()
			return time.Hour
		}
		e, now := s.pending[0], time.Since(s.origin)
		if later := s.touched(e.i); e.deadline <= now && later > e.deadline {
			e.deadline = later
			heap.Fix(&s.pending, 0)
			s.mu.Unlock()
			continue
		}
		if wait := e.deadline - now; wait > 0 {
			s.mu.Unlock()
			return wait
		}
		heap.Pop(&s.pending)
		s.mu.Unlock()
		s.callback(e.i)()
	}
}

// deadlineHeap implements [heap.Interface], the earliest deadline first.
type deadlineHeap []*heapEntry

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *deadlineHeap) Push(x any) {
	e := x.(*heapEntry)
	e.place = len(*h)
	*h = append(*h, e)
}

func (h *deadlineHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.place = -1
	return e
}

// touchedHeap is lazy: a touch stores the time, which is read in each step.
type touchedHeap struct {
	*heapTimer
	now   time.Duration
	heard []atomic.Int64 // durations since the origin; 0: never
}

func newTouchedHeap(c config) (subject, error) {
	s := &touchedHeap{heapTimer: makeHeap(c), heard: make([]atomic.Int64, c.n)}
	s.touched = func(i int) time.Duration {
		if heard := s.heard[i].Load(); heard > 0 {
			return time.Duration(heard) + s.timeout
		}
		return 0
	}
	s.done.Go(s.run)
	return s, nil
}

func (s *touchedHeap) reschedule(i int, _ time.Duration) { s.heard[i].Store(int64(s.now)) }
func (s *touchedHeap) step()                             { s.now = time.Since(s.origin) }
