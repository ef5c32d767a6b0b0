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
	task  Task          // wrapped in a *periodic if it is periodic
	shard *shard
	place place    // in the wheel of the shard; guarded by its mu
	next  *Timeout // in an inbox of the shard
}

// A state is the state of a Timeout. It changes from pending to expired or cancelled. A periodic
// Timeout changes between pending and running any number of times, and then to cancelled.
type state uint64

const (
	pending state = iota
	running       // periodic, and its task is being called
	expired
	cancelled
)

// A word has the deadline in its upper bits, then a bit for a new Timeout, which is not yet in the
// wheel of its shard, and the state. One compare-and-swap decides between expiry, Cancel and Reset
// on different goroutines.
const (
	stateMask = 3
	newBit    = 4
	wordShift = 3

	// refused is the state of a new Timeout that came after Stop. A new Timeout cannot expire, so
	// the state is unambiguous.
	refused = expired
)

// never is a deadline that does not pass: 73 years after NewTimer.
const never = math.MaxInt64 >> (wordShift - 1)

func newWord(deadline time.Duration, s state) uint64 { return uint64(deadline)<<wordShift | uint64(s) }

func deadlineOf(word uint64) time.Duration { return time.Duration(word >> wordShift) }
func stateOf(word uint64) state            { return state(word & stateMask) }
func isNew(word uint64) bool               { return word&newBit != 0 }

func withState(word uint64, s state) uint64 { return word&^stateMask | uint64(s) }
func withDeadline(word uint64, deadline time.Duration) uint64 {
	return uint64(deadline)<<wordShift | word&(newBit|stateMask)
}

// String returns the name of the task, the state and the deadline, for logs.
func (t *Timeout) String() string {
	word := t.word.Load()
	due := (deadlineOf(word) - t.shard.core.now()).Round(time.Millisecond)
	return fmt.Sprintf("%s, %s, due in %v", taskName(t.Task()), stateOf(word), due)
}

func (s state) String() string { return [...]string{"pending", "running", "expired", "cancelled"}[s] }

// Task returns the task that was passed to NewTimeout. A Timeout refers to its task, also after it
// has run.
func (t *Timeout) Task() Task {
	if p := t.periodic(); p != nil {
		return p.Task
	}
	return t.task
}

// Timer returns the Timer of the Timeout. A Timeout does not keep its Timer alive: if nothing else
// refers to the Timer, it stops once nothing is pending.
func (t *Timeout) Timer() *Timer { return t.shard.core.timer() }

// Expired reports whether the task has been called or is being called. A periodic Timeout expires
// only if its task panics.
func (t *Timeout) Expired() bool { return stateOf(t.word.Load()) == expired }

// Cancelled reports whether the Timeout was cancelled, by Cancel or by the Timer.
func (t *Timeout) Cancelled() bool { return stateOf(t.word.Load()) == cancelled }

// Cancel cancels a pending Timeout. It reports false if the task is running, has run, or was
// cancelled before. A periodic Timeout can also be cancelled while its task runs, also by the task:
// it does not run again.
//
// Cancel takes no lock. The Timer may refer to the task, and to up to 14 others per processor,
// until more Timeouts are made or cancelled there or another one is due.
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

// cancel cancels a pending or running Timeout, unless its word has changed meanwhile. The caller
// calls tellCancelled.
func (t *Timeout) cancel(word uint64) bool {
	if !t.word.CompareAndSwap(word, withState(word, cancelled)) {
		return false
	}
	if stateOf(word) == running {
		t.shard.left.Add(-1) // begin has counted it
	}
	t.shard.core.freePending()
	if !isNew(word) {
		t.shard.drop(t)
	}
	if t.shard.core.leak.garbage.Load() {
		t.shard.core.wakeDriver() // this may have been the last pending Timeout
	}
	return true
}

// cancelPending cancels a Timeout if it is pending, and reports whether it did. The caller calls
// tellCancelled.
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

// begin changes a pending Timeout to another state, unless its word has changed meanwhile.
func (t *Timeout) begin(word uint64, to state) bool {
	if !t.word.CompareAndSwap(word, withState(word, to)) {
		return false
	}
	t.shard.left.Add(1)
	if to != running { // a periodic one still counts as pending
		t.shard.core.freePending()
	}
	return true
}

// Reset moves the deadline of a pending Timeout to a delay from now. It reports false if the task
// is running, has run, or was cancelled. After true the task runs once, not before the delay has
// passed, even if it was about to run. A periodic Timeout continues with its period from there.
//
// A Reset to a later instant takes no lock. Zero, negative and very long delays are treated as by
// NewTimeout.
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
