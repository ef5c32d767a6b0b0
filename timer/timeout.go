package timer

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// A Timeout is a task in a Timer, and the handle to it. Its runs never overlap. Safe for concurrent
// use.
type Timeout struct {
	shard  *shard        // immutable
	task   func()        // immutable
	period time.Duration // immutable; negative for a fixed delay, 0 for a task that runs once

	// Guarded by the mu of the shard.
	deadline time.Duration // of the next run, or of the last one if no run is ahead
	handle   wheel.Handle  // in the wheel of the shard, if the place is filed
	place    place
	armed    bool   // a run is ahead
	moved    bool   // Reset has set the deadline while the task was running
	index    uint32 // among the active ones of the shard, if the place is submitted or running
}

// A place says where a Timeout is.
//
//	       file             the driver            run
//	none -------> filed ------------> submitted -------> running
//	  ^            | ^                  |  |                |
//	  +-- Stop ----+ +---- reset -------+  |                |
//	  |                or refused          |                |
//	  +----------------- stopped ----------+                |
//	  +------------------------ the task has ended ---------+
type place uint8

const (
	none      place = iota
	filed           // in the wheel
	submitted       // on the way to its run: with the driver or in an executor
	running         // the task is being called
)

// Task returns the task of the Timeout, so that a caller of Shutdown can call it.
func (t *Timeout) Task() func() { return t.task }

// Stop stops a Timeout. It reports true if that has prevented a run and the task is not running:
// then the task does not begin. It reports false if the task is running, has run, or was stopped.
// In each case no further run begins, until Reset.
//
// Stop does not wait for a running task. Shutdown does; for a single task, let the task say when it
// ends, for example with a [sync.WaitGroup].
func (t *Timeout) Stop() bool {
	s := t.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	was := t.waiting()
	if t.armed {
		s.stop(t)
	}
	return was
}

// Reset sets the next run to a delay from now, whether the Timeout is pending, running, has run or
// was stopped. It reports whether the Timeout was pending, like Reset of a [time.Timer]: false if
// the task is running, has run, or was stopped. The run is not before the delay has passed, and not
// before a running task has ended. A Timeout of Every continues with its period from there.
//
// A Timeout that was not pending stays so if the limit of pending Timeouts is reached, which is
// logged, and after Shutdown; see [Timeout.Pending].
func (t *Timeout) Reset(d time.Duration) bool {
	deadline := t.shard.core.in(d)
	was, err := t.reset(deadline)
	if errors.Is(err, ErrTooManyPending) {
		t.shard.core.warn(&t.shard.core.warnings.full, "a timeout was not reset", "timeout", t, "error", err)
	}
	return was
}

func (t *Timeout) reset(deadline time.Duration) (was bool, err error) {
	s := t.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	was = t.waiting()
	if !t.armed {
		if err := s.arm(t); err != nil {
			return false, err
		}
	}
	t.deadline = deadline
	switch t.place {
	case none:
		s.file(t, deadline)
	case filed:
		s.wheel.Reschedule(t.handle, deadline)
		s.core.wakeBy(deadline)
	case submitted: // run sees the deadline
	case running:
		t.moved = true
	}
	return was, nil
}

// Pending reports whether a run of the Timeout is ahead.
func (t *Timeout) Pending() bool {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	return t.armed
}

// waiting reports whether the Timeout is pending and its task is not running. The caller holds the
// mu of the shard.
func (t *Timeout) waiting() bool { return t.armed && t.place != running }

// String returns the name of the task, its state and its deadline, for logs.
func (t *Timeout) String() string {
	s := t.shard
	s.mu.Lock()
	armed, place, deadline := t.armed, t.place, t.deadline
	s.mu.Unlock()
	text := runtime.FuncForPC(t.code()).Name()
	if place == running {
		text += ", running"
	}
	if !armed {
		return text + ", not pending"
	}
	return fmt.Sprintf("%s, due in %v", text, (deadline - s.core.now()).Round(time.Millisecond))
}

// MarshalText returns the text of String, for logs in any format.
func (t *Timeout) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// code returns the address of the code of the task. Closures of one function literal share it.
func (t *Timeout) code() uintptr { return reflect.ValueOf(t.task).Pointer() }
