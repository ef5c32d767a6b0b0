package main

import (
	"container/heap"
	"sync"
	"time"
)

// A heapTimer is the usual simple implementation: container/heap behind a lock.
type heapTimer struct {
	origin  time.Time
	now     time.Duration // of the last step, since the origin
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

// newHeap makes a heapTimer. Each step fires what is due, outside the lock.
func newHeap(c config) subject {
	h := &heapTimer{origin: time.Now(), entries: make([]*heapEntry, c.n)}
	s := subject{schedule: h.schedule, cancel: h.cancel, reschedule: h.reschedule, close: nothing}
	expire := c.lazily(&s, &h.now)
	s.step = func() {
		h.now = time.Since(h.origin)
		for e := h.pop(); e != nil; e = h.pop() {
			expire(e.i)
		}
	}
	return s
}

func (h *heapTimer) schedule(i int, d time.Duration) {
	e := &heapEntry{deadline: time.Since(h.origin) + d, i: i}
	h.entries[i] = e
	h.mu.Lock()
	defer h.mu.Unlock()
	heap.Push(&h.pending, e)
}

func (h *heapTimer) cancel(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entries[i]; e.place >= 0 {
		heap.Remove(&h.pending, e.place)
	}
}

func (h *heapTimer) reschedule(i int, d time.Duration) {
	deadline := time.Since(h.origin) + d
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entries[i]; e.place >= 0 {
		e.deadline = deadline
		heap.Fix(&h.pending, e.place)
	}
}

// pop removes and returns an entry that is due, or returns nil.
func (h *heapTimer) pop() *heapEntry {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == 0 || h.pending[0].deadline > h.now {
		return nil
	}
	return heap.Pop(&h.pending).(*heapEntry)
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
