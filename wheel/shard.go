package wheel

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A shard is one of the wheels of a Timer. There are as many as processors, so that goroutines that run side by side seldom
// meet at one; which one a Timeout is in says nothing else about it.
//
// New Timeouts and cancelled ones go to inboxes, which takes no lock, and from there into the wheel or out of it, a number
// of them together. The wheel never hears of one that is cancelled before that.
type shard struct {
	core *core // immutable

	mu        sync.Mutex
	wheel     timeouts      // guarded by mu
	due       []*Timeout    // guarded by mu; only the driver adds and clears
	ran       int           // how many of these it has come to; owned by the driver
	now       time.Duration // guarded by mu; of the pass that is running
	scheduled int64         // guarded by mu; Timeouts made, of those that were read
	entered   int64         // guarded by mu; times that one became pending, of those that were read
	cancelled int64         // guarded by mu; of those that were read

	ended   bool         // guarded by mu; what closed stands for has been done
	closed  atomic.Bool  // set under mu: nothing may come in any more
	left    atomic.Int64 // times that a pending one began to run, less what cancelled counts too much
	expired atomic.Int64 // runs of tasks

	added inbox // new ones, cancelled or not

	dropped inbox        // those that were cancelled and are not new
	unread  atomic.Int64 // how many these are, or are about to be

	_ [64]byte // keep the shards apart as well
}

// An inbox is a stack of Timeouts that one goroutine empties and any may add to.
type inbox struct {
	top atomic.Pointer[Timeout] // linked by next

	_ [64]byte // keep it apart in the cache
}

// post adds a Timeout, and reports whether it has met another goroutine.
func (b *inbox) post(t *Timeout) (contended bool) {
	for {
		top := b.top.Load()
		t.next = top
		if b.top.CompareAndSwap(top, t) {
			return contended
		}
		contended = true
	}
}

// readAtOnce is how many a processor puts into an inbox before it reads it, unless another one is at it just then. The
// memory answers as fast for all of them as for one.
const readAtOnce = blockIDs

// accept takes a new Timeout, and reports false if nothing may come in any more, and whether it has met another goroutine.
func (s *shard) accept(t *Timeout, read bool) (accepted, contended bool) {
	if s.closed.Load() {
		return false, false
	}
	contended = s.added.post(t)
	if read {
		s.tryRead()
	}
	if !s.closed.Load() {
		return true, contended // whoever closes reads the inbox after this
	}
	word := t.word.Load()
	refuse := isNew(word) && t.word.CompareAndSwap(word, withState(word, refused))
	return !refuse, contended // or it was still read
}

// drop sees to it that a Timeout that was cancelled is taken out of the wheel. New ones need nothing: that is seen when they
// are read.
func (s *shard) drop(t *Timeout) {
	s.dropped.post(t)
	if s.unread.Add(1) >= readAtOnce {
		s.tryRead()
	}
}

func (s *shard) tryRead() {
	if s.mu.TryLock() {
		s.readLocked()
		s.mu.Unlock()
	}
}

// readLocked empties the inboxes. The caller holds the lock.
func (s *shard) readLocked() {
	for t := s.dropped.top.Swap(nil); t != nil; {
		var some [readAtOnce]*Timeout
		n := 0
		for ; t != nil && n < len(some); n++ {
			some[n] = t
			t, t.next = t.next, nil
		}
		s.wheel.remove(some[:n])
		s.cancelled += int64(n)
		s.unread.Add(int64(-n))
	}
	for t := s.added.top.Swap(nil); t != nil; {
		next := t.next
		t.next = nil
		s.takeInLocked(t)
		t = next
	}
}

// takeInLocked schedules a Timeout that is new.
func (s *shard) takeInLocked(t *Timeout) {
	if s.ended {
		return // too late: accept refuses it
	}
	word := t.word.Load()
	for stateOf(word) == pending {
		if t.word.CompareAndSwap(word, word&^newBit) {
			s.scheduled++
			s.fileLocked(t, deadlineOf(word))
			return
		}
		word = t.word.Load()
	}
	if stateOf(word) == cancelled {
		s.scheduled++
		s.entered++
		s.cancelled++
	}
}

// fileLocked schedules a Timeout that has become pending.
func (s *shard) fileLocked(t *Timeout, deadline time.Duration) {
	s.wheel.file(t, deadline)
	s.entered++
}

// reenter makes a Timeout that runs pending again. It reports false if it was cancelled or nothing may come in. One that is to
// begin at once is not put into the wheel.
func (s *shard) reenter(t *Timeout, deadline time.Duration, atOnce bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := t.word.Load()
	if s.closed.Load() || stateOf(word) != running || !t.word.CompareAndSwap(word, newWord(deadline, pending)) {
		return false
	}
	s.entered++
	if !atOnce {
		s.wheel.file(t, deadline)
	}
	return true
}

// nextDue returns when the first slot that holds something comes up.
func (s *shard) nextDue() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readLocked()
	return s.wheel.nextDue()
}

// counts returns how many Timeouts are pending, were scheduled, and were cancelled.
func (s *shard) counts() (pending, scheduled, cancelled int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countsLocked()
}

func (s *shard) countsLocked() (pending, scheduled, cancelled int64) {
	s.readLocked()
	left := s.left.Load() // last: a running one that is cancelled is taken off this before it is in the inbox
	return s.entered - left - s.cancelled, s.scheduled, s.cancelled
}

// hasten sees to it that a Timeout whose deadline has become an earlier one is looked at in time. One that is in no wheel is
// about to be looked at anyway.
func (s *shard) hasten(t *Timeout) {
	s.mu.Lock()
	deadline := deadlineOf(t.word.Load()) // the last one, if several are at it
	if t.place != (place{}) {
		s.wheel.remove([]*Timeout{t})
		s.wheel.file(t, deadline)
	}
	s.mu.Unlock()
	s.core.wakeFor(deadline)
}

// refile puts a Timeout that is pending and in no wheel back. It reports false if the Timer was stopped: Stop will find it
// where it is.
func (s *shard) refile(t *Timeout) bool {
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return false
	}
	word := t.word.Load()                                 // under the lock: a Reset from here on finds it in the wheel
	if stateOf(word) == pending && t.place == (place{}) { // or it is cancelled, and dropped as soon as we unlock
		s.wheel.file(t, deadlineOf(word))
	}
	s.mu.Unlock()
	s.core.wakeFor(deadlineOf(word))
	return true
}

// collect moves what is due at now, or a part of it, to the list of those that are run next, and reports whether there is
// more.
func (s *shard) collect(now time.Duration) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	clear(s.due)
	s.due, s.ran, s.now = s.due[:0], 0, now
	return s.wheel.advance(now, collectAtOnce, s.takeLocked)
}

// forget lets go of what was run.
func (s *shard) forget() {
	s.mu.Lock()
	if !s.closed.Load() {
		clear(s.due)
		s.due, s.ran = s.due[:0], 0
	}
	s.mu.Unlock()
}

// collectAtOnce bounds how long the lock is held: about 5 microseconds.
const collectAtOnce = 256

// takeLocked is called by the wheel for each Timeout whose slot has come up.
func (s *shard) takeLocked(t *Timeout) {
	word := t.word.Load()
	switch {
	case stateOf(word) != pending: // cancelled, and on its way to be dropped
	case deadlineOf(word) > s.now: // Reset to later
		s.wheel.file(t, deadlineOf(word))
	default:
		s.due = append(s.due, t)
	}
}

// close refuses what comes from now on and returns all that is in the shard, whatever its state.
func (s *shard) close() (all []*Timeout) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.Store(true) // before the inboxes are read for the last time, see accept
	s.readLocked()
	s.ended = true
	all = append(all, s.due...)
	s.wheel.advance(endOfTime, math.MaxInt, func(t *Timeout) { all = append(all, t) })
	return all
}
