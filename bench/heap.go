package main

import (
	"container/heap"
	"sync"
	"time"
)

// A heapTimer is the usual simple implementation: container/heap behind a mutex, and one goroutine
// that sleeps until the earliest deadline and fires outside the lock.
type heapTimer struct {
	fire    func(i int)
	origin  time.Time
	entries []*heapEntry

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

func heapCandidate() candidate {
	return candidate{name: "container/heap", module: stdModule, new: newHeapTimer}
}

func newHeapTimer(c config) (subject, error) {
	s := &heapTimer{
		fire:    c.fire,
		origin:  time.Now(),
		entries: make([]*heapEntry, c.n),
		wake:    make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	if s.fire == nil {
		s.fire = func(int) {}
	}
	s.done.Go(s.run)
	return s, nil
}

func (s *heapTimer) schedule(i int, d time.Duration) {
	e := &heapEntry{deadline: time.Since(s.origin) + d, i: i}
	s.entries[i] = e
	s.mu.Lock()
	heap.Push(&s.pending, e)
	first := e.place == 0
	s.mu.Unlock()
	if first {
		s.poke()
	}
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
	if e.place < 0 {
		s.mu.Unlock()
		return
	}
	e.deadline = deadline
	heap.Fix(&s.pending, e.place)
	first := e.place == 0
	s.mu.Unlock()
	if first {
		s.poke()
	}
}

func (s *heapTimer) close() {
	close(s.quit)
	s.done.Wait()
}

func (s *heapTimer) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a signal is already waiting
	}
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
		if wait := s.pending[0].deadline - time.Since(s.origin); wait > 0 {
			s.mu.Unlock()
			return wait
		}
		e := heap.Pop(&s.pending).(*heapEntry)
		s.mu.Unlock()
		s.fire(e.i)
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
