// Package conntimer calls functions after delays, for connections that may close before.
package conntimer

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/wheel"
)

// Timers holds the timers of the connections of one event loop. Create one with New. Not safe
// for concurrent use; the goroutine of the event loop owns it.
type Timers[C comparable] struct {
	wheel *wheel.Wheel[*Timer[C]]
	first map[C]*Timer[C] // of each connection with timers; the others are linked
}

// A Timer is a function that is to be called once, or again and again.
type Timer[C comparable] struct {
	conn   C
	call   func()
	due    mono.Time
	every  time.Duration // 0 for once
	handle wheel.Handle

	next, prev *Timer[C] // of the same connection
}

// New returns Timers with a positive tick. A function is called at most two ticks late.
func New[C comparable](tick time.Duration) *Timers[C] {
	w, err := wheel.New[*Timer[C]](tick)
	if err != nil {
		panic("BUG: conntimer: " + err.Error())
	}
	return &Timers[C]{wheel: w, first: make(map[C]*Timer[C])}
}

// Add adds a function of a connection that is called at an instant. If every is not 0, it is called
// again after each such time.
func (t *Timers[C]) Add(conn C, due mono.Time, every time.Duration, call func()) *Timer[C] {
	timer := &Timer[C]{conn: conn, call: call, due: due, every: every, next: t.first[conn]}
	timer.handle = t.wheel.Schedule(time.Duration(due), timer)
	if timer.next != nil {
		timer.next.prev = timer
	}
	t.first[conn] = timer
	return timer
}

// Stop removes a Timer. It reports false if its only call has begun, or the Timer was removed
// before.
func (t *Timers[C]) Stop(timer *Timer[C]) bool {
	if !t.wheel.Cancel(timer.handle) {
		return false
	}
	if timer.next != nil {
		timer.next.prev = timer.prev
	}
	switch {
	case timer.prev != nil:
		timer.prev.next = timer.next
	case timer.next != nil:
		t.first[timer.conn] = timer.next
	default:
		delete(t.first, timer.conn)
	}
	return true
}

// Drop removes all Timers of a connection, which has closed.
func (t *Timers[C]) Drop(conn C) {
	if len(t.first) == 0 {
		return
	}
	for timer := t.first[conn]; timer != nil; timer = timer.next {
		t.wheel.Cancel(timer.handle)
	}
	delete(t.first, conn)
}

// Len returns the number of Timers.
func (t *Timers[C]) Len() int { return t.wheel.Len() }

// NextDue returns the instant at which Advance may have something to do, and false if there is
// none.
func (t *Timers[C]) NextDue() (mono.Time, bool) {
	due, ok := t.wheel.NextDue()
	return mono.Time(due), ok
}

// Advance calls the next function that is due, and reports whether there may be more. A function
// may add, stop and drop Timers.
func (t *Timers[C]) Advance(now mono.Time) (more bool) {
	_, more = t.wheel.Advance(time.Duration(now), 1, func(h wheel.Handle, timer *Timer[C]) {
		if timer.every == 0 {
			t.Stop(timer)
		} else {
			// Calls that were missed are made up for by timer.
			timer.due = timer.due.Add(timer.every * (1 + max(now.Sub(timer.due), 0)/timer.every))
			t.wheel.Reschedule(h, time.Duration(timer.due))
		}
		timer.call()
	})
	return more
}
