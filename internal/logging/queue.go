// Package logging separates a program from the reader of its log, which may stall or be gone, and
// limits how often a warning is logged, so that a flood of causes is not a flood of log lines.
//
// Records wait in a bounded queue, and a goroutine writes them in order. A record that finds the
// queue full is dropped. The next record that is written follows a warning with the number of
// dropped ones. The goroutine ends when the queue is empty, so a queue needs no Close.
package logging

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// capacity is the number of records or lines that wait at most. One more is being written.
	capacity = 1024
	// flushTimeout bounds Flush: the reader may never read again.
	flushTimeout = time.Second
)

// A Queue calls functions one after the other on a goroutine of its own. Safe for concurrent use.
type Queue struct {
	tell    func(dropped uint64) // writes how many were dropped
	dropped atomic.Uint64        // in total

	mu      sync.Mutex
	waiting []func() error // guarded by mu
	untold  uint64         // dropped since the last call of tell; guarded by mu
	done    chan struct{}  // closed when the goroutine ends, nil if there is none; guarded by mu
}

// add appends a function to the queue, or drops it if the queue is full. It does not block.
func (q *Queue) add(write func() error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == capacity {
		q.dropped.Add(1)
		q.untold++
		return
	}
	if n := q.untold; n > 0 {
		q.untold = 0
		next := write
		write = func() error {
			q.tell(n)
			return next()
		}
	}
	q.waiting = append(q.waiting, write)
	if q.done == nil {
		q.done = make(chan struct{})
		go q.run()
	}
}

// run calls the functions until the queue is empty. If the handler of the program ends the
// goroutine by runtime.Goexit, another goroutine calls the remaining functions.
func (q *Queue) run() {
	empty := false
	defer func() {
		if !empty {
			q.dropped.Add(1)
			go q.run()
		}
	}()
	for write := q.next(); write != nil; write = q.next() {
		if !succeeds(write) {
			q.dropped.Add(1)
		}
	}
	empty = true
}

// succeeds calls a function, and reports whether it returns without an error. If the handler of the
// program panics, the goroutine of the queue does not end the process.
func succeeds(write func() error) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return write() == nil
}

// next removes the first function from the queue and returns it. It returns nil if there is none:
// the goroutine ends.
func (q *Queue) next() (write func() error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch n := q.untold; {
	case len(q.waiting) > 0:
		write, q.waiting[0], q.waiting = q.waiting[0], nil, q.waiting[1:]
	case n > 0:
		q.untold = 0
		write = func() error {
			q.tell(n)
			return nil
		}
	default:
		close(q.done)
		q.done, q.waiting = nil, nil
	}
	return write
}

// Dropped returns the number of records or lines that were not written because the queue was full
// or the write failed.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Flush waits until the queue is empty, but at most a second.
func (q *Queue) Flush() {
	q.mu.Lock()
	done := q.done
	q.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(flushTimeout):
	}
}
