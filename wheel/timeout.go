package wheel

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// A Timeout is one task in a Timer, and the handle to it. Safe for concurrent use.
type Timeout struct {
	word  atomic.Uint64 // deadline and state
	task  Task          // a *periodic around the one that was given, if it does not run only once
	shard *shard
	place place    // in the wheel of the shard; guarded by its mu
	next  *Timeout // in an inbox of the shard
}

// A state is where a Timeout is in its life: pending to expired or cancelled, or, if it is periodic, pending to running and
// back any number of times, and to cancelled.
type state uint64

const (
	pending state = iota
	running       // periodic, and its task is being called
	expired
	cancelled
)

// A word is the deadline and below it the state and whether the Timeout is new, that is, not yet in the wheel of its
// shard: one compare-and-swap decides between expiry, Cancel and Reset, whichever goroutines they are on.
const (
	stateMask = 3
	newBit    = 4
	wordShift = 3

	// refused is the state of a new one that came too late. It has no other meaning then: what is new cannot expire.
	refused = expired
)

// never is the deadline that does not come: 73 years after the Timer was made.
const never = math.MaxInt64 >> (wordShift - 1)

func newWord(deadline time.Duration, s state) uint64 { return uint64(deadline)<<wordShift | uint64(s) }

func deadlineOf(word uint64) time.Duration { return time.Duration(word >> wordShift) }
func stateOf(word uint64) state            { return state(word & stateMask) }
func isNew(word uint64) bool               { return word&newBit != 0 }

func withState(word uint64, s state) uint64 { return word&^stateMask | uint64(s) }
func withDeadline(word uint64, deadline time.Duration) uint64 {
	return uint64(deadline)<<wordShift | word&(newBit|stateMask)
}

// String returns what the task is, the state and the deadline, for logs.
func (t *Timeout) String() string {
	word := t.word.Load()
	due := (deadlineOf(word) - t.shard.core.now()).Round(time.Millisecond)
	return fmt.Sprintf("%s, %s, due in %v", taskName(t.Task()), stateOf(word), due)
}

func (s state) String() string { return [...]string{"pending", "running", "expired", "cancelled"}[s] }

// Task returns the task that NewTimeout was given. A Timeout that is kept keeps its task, also when it has run.
func (t *Timeout) Task() Task {
	if p := t.periodic(); p != nil {
		return p.Task
	}
	return t.task
}

// Timer returns the Timer it belongs to. That does not keep the Timer alive: one that nothing else refers to stops once nothing
// is pending.
func (t *Timeout) Timer() *Timer { return t.shard.core.timer() }

// Expired reports whether its task has been called, or is being called for the first and only time. A periodic Timeout
// does not expire before its task panics.
func (t *Timeout) Expired() bool { return stateOf(t.word.Load()) == expired }

// Cancelled reports whether it was cancelled, by Cancel or by the Timer.
func (t *Timeout) Cancelled() bool { return stateOf(t.word.Load()) == cancelled }

// Cancel takes a pending Timeout out and reports whether it did: false means that the task is running, has run, or was
// cancelled before. A periodic one is cancelled while its task runs as well, which it may do itself: it does not run again.
//
// It takes no lock. The Timer may keep the task, and up to 14 others for each processor, until more Timeouts have been made or
// cancelled there or something else is due.
func (t *Timeout) Cancel() bool {
	for {
		word := t.word.Load()
		if s := stateOf(word); s != pending && s != running {
			return false
		}
		if t.cancel(word) {
			t.tellCancelled()
			return true
		}
	}
}

// cancel takes a pending or running Timeout out, unless its word has changed meanwhile. The caller tells the task.
func (t *Timeout) cancel(word uint64) bool {
	if !t.word.CompareAndSwap(word, withState(word, cancelled)) {
		return false
	}
	if stateOf(word) == running {
		t.shard.left.Add(-1) // it has left already
	}
	t.shard.core.freePending()
	if !isNew(word) {
		t.shard.drop(t)
	}
	if t.shard.core.leak.garbage.Load() {
		t.shard.core.wakeDriver() // it may have nothing left to do
	}
	return true
}

// cancelPending takes a Timeout out if it is pending, and reports whether it did. The caller tells the task.
func (t *Timeout) cancelPending() bool {
	for {
		word := t.word.Load()
		if stateOf(word) != pending {
			return false
		}
		if t.cancel(word) {
			return true
		}
	}
}

// begin takes a Timeout from pending to a state in which it is not, unless its word has changed meanwhile.
func (t *Timeout) begin(word uint64, to state) bool {
	if !t.word.CompareAndSwap(word, withState(word, to)) {
		return false
	}
	t.shard.left.Add(1)
	if to != running { // a periodic one keeps its place
		t.shard.core.freePending()
	}
	return true
}

// Reset makes a pending Timeout expire after a delay from now, and reports whether it did: false means that it runs, has
// run, or was cancelled. After true, the task does not run before the delay has passed, and only once, even if it was about
// to. A periodic Timeout goes on from there with its period.
//
// To a later instant, which is what a heartbeat does, it takes no lock. Zero, negative and very long delays are treated as
// NewTimeout does.
func (t *Timeout) Reset(delay time.Duration) bool {
	deadline := t.shard.core.deadlineIn(delay)
	for {
		word := t.word.Load()
		if stateOf(word) != pending {
			return false
		}
		if t.word.CompareAndSwap(word, withDeadline(word, deadline)) {
			if deadline < deadlineOf(word) {
				t.shard.hasten(t)
			}
			return true
		}
	}
}

func (t *Timeout) tellCancelled() {
	if task, ok := t.Task().(CancelTask); ok {
		ended := false
		defer t.shard.core.recoverPanic(t, &ended)
		task.Cancelled(t)
		ended = true
	}
}
