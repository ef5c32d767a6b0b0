package wheel

import (
	"sync"
	"sync/atomic"
)

// A shard is one of the wheels of a Timer. There are as many as processors, so that goroutines that run side by side seldom
// meet at a lock; which one a Timeout is in says nothing else about it.
type shard struct {
	core *core // immutable

	mu     sync.Mutex
	wheel  *Wheel[*Timeout] // guarded by mu
	closed bool             // guarded by mu; the Timer was stopped: nothing may come in
	due    []*Timeout       // guarded by mu; only the driver adds and clears
	now    int64            // guarded by mu; of the Advance that is running

	pending, scheduled, expired, cancelled atomic.Int64

	_ [64]byte // keep the counters of two shards apart in the cache
}

// count counts a Timeout that has gone from one state to another.
func (s *shard) count(from, to state) {
	if from == pending {
		s.core.leavePending(s)
	}
	switch to {
	case pending:
		s.core.enterPending(s)
	case running, expired:
		if from == pending {
			s.expired.Add(1)
		}
	case cancelled:
		s.cancelled.Add(1)
	}
}

// addLocked schedules a new Timeout, and reports whether the Timer still takes any.
func (s *shard) addLocked(t *Timeout, deadline int64) bool {
	if s.closed {
		return false
	}
	t.handle = s.wheel.Schedule(instant(deadline), t)
	return true
}

// remove takes a Timeout that was cancelled out of the wheel.
func (s *shard) remove(t *Timeout) {
	s.mu.Lock()
	s.wheel.Cancel(t.handle)
	t.handle = 0
	s.mu.Unlock()
}

// hasten moves a Timeout to an earlier deadline. One that is in no wheel is about to be looked at anyway.
func (s *shard) hasten(t *Timeout, deadline int64) {
	s.mu.Lock()
	if t.handle != 0 {
		t.handle = s.wheel.Reschedule(t.handle, instant(deadline))
	}
	s.mu.Unlock()
	s.core.wakeFor(deadline)
}

// file puts a Timeout that is pending and in no wheel back, to be looked at again at an instant. It reports false if the
// Timer was stopped: Stop will find it where it is.
func (s *shard) file(t *Timeout, at int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if stateOf(t.word.Load()) == pending && t.handle == 0 { // Cancel, which comes before us or waits for the lock
		t.handle = s.wheel.Schedule(instant(at), t)
	}
	return true
}

// collect moves what is due at now, or a part of it, to the list of those that are run next, and reports whether there is
// more.
func (s *shard) collect(now int64) (due []*Timeout, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	clear(s.due)
	s.due, s.now = s.due[:0], now
	_, more = s.wheel.Advance(instant(now), collectAtOnce, s.takeLocked)
	return s.due, more
}

// forget lets go of what was run.
func (s *shard) forget() {
	s.mu.Lock()
	if !s.closed {
		clear(s.due)
		s.due = s.due[:0]
	}
	s.mu.Unlock()
}

// collectAtOnce bounds how long the lock is held: about 5 microseconds.
const collectAtOnce = 256

// takeLocked is called by the wheel for each entry whose slot has come up.
func (s *shard) takeLocked(h Handle, t *Timeout) {
	word := t.word.Load()
	switch {
	case stateOf(word) != pending: // being cancelled
	case deadlineOf(word) > s.now: // Reset to later
		s.wheel.Reschedule(h, instant(deadlineOf(word)))
		return
	default:
		s.due = append(s.due, t)
	}
	t.handle = 0
}

// close refuses what comes from now on and returns all that is in the shard, whatever its state.
func (s *shard) close() (all []*Timeout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.now = endOfTime
	all = append(all, s.due...)
	s.wheel.Advance(endOfTime, maxBudget, func(_ Handle, t *Timeout) {
		t.handle = 0
		all = append(all, t)
	})
	return all
}
