package wheel

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A shard is one of the wheels of a Timer. There are as many as processors, so that goroutines that run side by side seldom
// meet at a lock; which one a Timeout is in says nothing else about it.
type shard struct {
	core *core // immutable

	mu        sync.Mutex
	wheel     *Wheel[*Timeout] // guarded by mu
	closed    bool             // guarded by mu; nothing may come in any more
	due       []*Timeout       // guarded by mu; only the driver adds and clears
	now       time.Duration    // guarded by mu; of the Advance that is running
	scheduled int64            // guarded by mu; Timeouts made
	entered   int64            // guarded by mu; times that one became pending
	cancelled int64            // guarded by mu; those of the stack of discarded that were removed

	left      atomic.Int64            // times that a pending one began to run or was dropped; less what cancelled counts too much
	expired   atomic.Int64            // runs of tasks
	discarded atomic.Pointer[Timeout] // a stack, linked by next: cancelled, and not yet removed from the wheel
	waiting   atomic.Int64            // how many these are, or are about to be

	_ [64]byte // keep the counters of two shards apart in the cache
}

// addLocked schedules a Timeout that has become pending, and reports false if nothing may come in. The caller holds the lock.
func (s *shard) addLocked(t *Timeout, deadline time.Duration) bool {
	if s.closed {
		return false
	}
	if s.waiting.Load() >= removeAtOnce {
		s.removeLocked()
	}
	t.handle = s.wheel.Schedule(deadline, t)
	s.entered++
	return true
}

// reenter makes a Timeout that runs pending again. It reports false if it was cancelled or nothing may come in.
func (s *shard) reenter(t *Timeout, deadline time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := t.word.Load()
	if s.closed || stateOf(word) != running || !t.word.CompareAndSwap(word, newWord(deadline, pending)) {
		return false
	}
	if s.core.cfg.MaxPending > 0 {
		s.core.limited.Add(1) // it was accepted for good
	}
	return s.addLocked(t, deadline)
}

// removeAtOnce is how many cancelled Timeouts are taken out of the wheel together. The memory answers as fast for all of
// them as for one.
const removeAtOnce = blockIDs

// discard gives a Timeout that was cancelled to whoever holds the lock next, without waiting for it: a cancelled Timeout
// that stays in the wheel for a while does no harm.
func (s *shard) discard(t *Timeout) {
	for {
		top := s.discarded.Load()
		t.next = top
		if s.discarded.CompareAndSwap(top, t) {
			break
		}
	}
	if s.waiting.Add(1) >= removeAtOnce && s.mu.TryLock() {
		s.removeLocked()
		s.mu.Unlock()
	}
}

// removeLocked takes the discarded Timeouts out of the wheel.
func (s *shard) removeLocked() {
	for t := s.discarded.Swap(nil); t != nil; {
		var some [removeAtOnce]*Timeout
		var ids [blockIDs]uint32
		n := 0
		for ; t != nil && n < len(some); n++ {
			some[n], ids[n] = t, t.handle.id()
			t, t.next = t.next, nil
		}
		s.wheel.prefetchEntries(&ids)
		for _, t := range some[:n] {
			s.wheel.Cancel(t.handle)
			t.handle = 0
		}
		s.cancelled += int64(n)
		s.waiting.Add(int64(-n))
	}
}

// counts returns how many Timeouts are pending, were scheduled, and were cancelled.
func (s *shard) counts() (pending, scheduled, cancelled int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countsLocked()
}

func (s *shard) countsLocked() (pending, scheduled, cancelled int64) {
	left := s.left.Load() // first: what has left has entered before
	s.removeLocked()
	return s.entered - left - s.cancelled, s.scheduled, s.cancelled
}

// hasten sees to it that a Timeout whose deadline has become an earlier one is looked at in time. One that is in no wheel is
// about to be looked at anyway.
func (s *shard) hasten(t *Timeout) {
	s.mu.Lock()
	deadline := deadlineOf(t.word.Load()) // the last one, if several are at it
	if t.handle != 0 {
		t.handle = s.wheel.Reschedule(t.handle, deadline)
	}
	s.mu.Unlock()
	s.core.wakeFor(deadline)
}

// refile puts a Timeout that is pending and in no wheel back, to be looked at again at an instant. It reports false if the
// Timer was stopped: Stop will find it where it is.
func (s *shard) refile(t *Timeout, at time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if stateOf(t.word.Load()) == pending && t.handle == 0 { // or it is discarded, now or as soon as we unlock
		t.handle = s.wheel.Schedule(at, t)
	}
	return true
}

// collect moves what is due at now, or a part of it, to the list of those that are run next, and reports whether there is
// more.
func (s *shard) collect(now time.Duration) (due []*Timeout, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	clear(s.due)
	s.due, s.now = s.due[:0], now
	_, more = s.wheel.Advance(now, collectAtOnce, s.takeLocked)
	return s.due, more
}

// forget lets go of what was run and of what was cancelled.
func (s *shard) forget() {
	s.mu.Lock()
	if !s.closed {
		clear(s.due)
		s.due = s.due[:0]
		s.removeLocked()
	}
	s.mu.Unlock()
}

// collectAtOnce bounds how long the lock is held: about 5 microseconds.
const collectAtOnce = 256

// takeLocked is called by the wheel for each entry whose slot has come up.
func (s *shard) takeLocked(h Handle, t *Timeout) {
	word := t.word.Load()
	switch {
	case stateOf(word) != pending: // cancelled
	case deadlineOf(word) > s.now: // Reset to later
		s.wheel.Reschedule(h, deadlineOf(word))
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
	s.removeLocked()
	all = append(all, s.due...)
	s.wheel.Advance(endOfTime, math.MaxInt, func(_ Handle, t *Timeout) {
		t.handle = 0
		all = append(all, t)
	})
	return all
}
