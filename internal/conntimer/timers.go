// Package conntimer calls functions after delays, for connections that may close before.
package conntimer

import (
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/wheel"
)

// Timers holds the timers of the connections of one event loop. Create one with New. Not safe
// for concurrent use; the goroutine of the event loop owns it.
type Timers[C comparable] struct {
	wheel *wheel.Wheel[*Timer[C]]
	of    map[C][]*Timer[C]
}

// A Timer is a function that is to be called once, or again and again.
type Timer[C comparable] struct {
	conn   C
	call   func()
	due    mono.Time
	every  time.Duration // 0 for once
	handle wheel.Handle
}

// New returns Timers with a positive tick. A function is called at most two ticks late.
func New[C comparable](tick time.Duration) *Timers[C] {
	w, err := wheel.New[*Timer[C]](tick)
	if err != nil {
		panic("BUG: conntimer: " + err.Error())
	}
	return &Timers[C]{wheel: w, of: make(map[C][]*Timer[C])}
}

// Add adds a function of a connection that is called at an instant. If every is not 0, it is called
// again after each such time.
func (t *Timers[C]) Add(conn C, due mono.Time, every time.Duration, call func()) *Timer[C] {
	one := &Timer[C]{conn: conn, call: call, due: due, every: every}
	one.handle = t.wheel.Schedule(time.Duration(due), one)
	t.of[conn] = append(t.of[conn], one)
	return one
}

// Stop removes a Timer. It reports false if the function was called once and for all, or the Timer
// was removed before.
func (t *Timers[C]) Stop(one *Timer[C]) bool {
	if !t.wheel.Cancel(one.handle) {
		return false
	}
	t.forget(one)
	return true
}

func (t *Timers[C]) forget(one *Timer[C]) {
	all := t.of[one.conn]
	if all = slices.DeleteFunc(all, func(other *Timer[C]) bool { return other == one }); len(all) > 0 {
		t.of[one.conn] = all
	} else {
		delete(t.of, one.conn)
	}
}

// Drop removes all Timers of a connection, which has closed.
func (t *Timers[C]) Drop(conn C) {
	if len(t.of) == 0 {
		return
	}
	for _, one := range t.of[conn] {
		t.wheel.Cancel(one.handle)
	}
	delete(t.of, conn)
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
	_, more = t.wheel.Advance(time.Duration(now), 1, func(h wheel.Handle, one *Timer[C]) {
		if one.every == 0 {
			t.Stop(one)
		} else {
			// Calls that were missed are made up for by one.
			one.due = one.due.Add(one.every * (1 + max(now.Sub(one.due), 0)/one.every))
			t.wheel.Reschedule(h, time.Duration(one.due))
		}
		one.call()
	})
	return more
}
