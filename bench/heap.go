package main

import (
	"container/heap"
	"sync"
	"time"
)

// A heapTimer is the usual simple implementation: container/heap behind a lock. Each step fires
// what is due, outside the lock.
type heapTimer struct {
	config
	origin  time.Time
	entries []*heapEntry

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
	return &heapTimer{config: c, origin: time.Now(), entries: make([]*heapEntry, c.n)}
}

func newHeap(c config) (subject, error) { return makeHeap(c), nil }

func (s *heapTimer) schedule(i int, d time.Duration) {
	e := &heapEntry{deadline: time.Since(s.origin) + d, i: i}
	s.entries[i] = e
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Push(&s.pending, e)
}

func (s *heapTimer) cancel(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[i]; e.place >= 0 {
		heap.Remove(&s.pending, e.place)
	}
}

func (s *heapTimer) reschedule(i int, d time.Duration) {
	deadline := time.Since(s.origin) + d
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[i]; e.place >= 0 {
		e.deadline = deadline
		heap.Fix(&s.pending, e.place)
	}
}

func (s *heapTimer) step() {
	now := time.Since(s.origin)
	for e := s.pop(now); e != nil; e = s.pop(now) {
		s.callback(e.i)()
	}
}

// pop removes and returns an entry that is due, or returns nil.
func (s *heapTimer) pop(now time.Duration) *heapEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || s.pending[0].deadline > now {
		return nil
	}
	return heap.Pop(&s.pending).(*heapEntry)
}

func (s *heapTimer) close() {}

// touchedHeap is lazy: a touch stores the time of the last step.
type touchedHeap struct {
	*heapTimer
	now   time.Duration
	heard []time.Duration // 0: never
}

func newTouchedHeap(c config) (subject, error) {
	return &touchedHeap{heapTimer: makeHeap(c), heard: make([]time.Duration, c.n)}, nil
}

func (s *touchedHeap) reschedule(i int, _ time.Duration) { s.heard[i] = s.now }

func (s *touchedHeap) step() {
	s.now = time.Since(s.origin)
	for e := s.pop(s.now); e != nil; e = s.pop(s.now) {
		if heard := s.heard[e.i]; heard > 0 && heard+s.timeout > s.now {
			s.schedule(e.i, heard+s.timeout-s.now)
			continue
		}
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
