package main

import (
	"container/heap"
	"sync"
	"time"
)

// A heapTimer is the usual simple implementation: container/heap behind a lock. Each step fires
// what is due, outside the lock. If it is touched, it is lazy: a touch stores the time of the last
// step.
type heapTimer struct {
	config
	origin  time.Time
	now     time.Duration // of the last step, since the origin
	entries []*heapEntry
	heard   []time.Duration // if touched; 0: never

	mu      sync.Mutex
	pending deadlineHeap
}

// A heapEntry knows its place in the heap, so that it can be moved and removed there.
type heapEntry struct {
	deadline time.Duration // since the origin
	place    int           // -1 when in no heap
	i        int
}

func newHeap(c config) (subject, error) {
	h := &heapTimer{config: c, origin: time.Now(), entries: make([]*heapEntry, c.n)}
	s := subject{h.schedule, h.cancel, h.reschedule, h.step, nothing}
	if c.timeout > 0 {
		h.heard = make([]time.Duration, c.n)
		s.reschedule = func(i int, _ time.Duration) { h.heard[i] = h.now }
	}
	return s, nil
}

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
	s.now = time.Since(s.origin)
	for e := s.pop(); e != nil; e = s.pop() {
		if s.timeout > 0 && s.heard[e.i] > 0 && s.heard[e.i]+s.timeout > s.now {
			s.schedule(e.i, s.heard[e.i]+s.timeout-s.now)
			continue
		}
		s.callback(e.i)()
	}
}

// pop removes and returns an entry that is due, or returns nil.
func (s *heapTimer) pop() *heapEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || s.pending[0].deadline > s.now {
		return nil
	}
	return heap.Pop(&s.pending).(*heapEntry)
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
