package wheel

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A shard is one of the wheels of a Timer. There are as many as processors, so that concurrent
// goroutines rarely use the same one.
//
// New and cancelled Timeouts are posted to inboxes without a lock, and added to the wheel or
// removed from it in batches. A Timeout that is cancelled before its batch never enters the wheel.
type shard struct {
	core *core // immutable

	mu        sync.Mutex
	wheel     timeouts      // guarded by mu
	due       []*Timeout    // guarded by mu; only the driver adds and clears
	ran       int           // the number of due ones that were run; owned by the driver
	now       time.Duration // guarded by mu; the instant of the current pass
	scheduled int64         // guarded by mu; Timeouts made, without unread ones
	// Guarded by mu; number of times a Timeout became pending, without unread ones.
	entered   int64
	cancelled int64 // guarded by mu; without unread ones

	ended  bool        // guarded by mu; the inboxes were read for the last time
	closed atomic.Bool // set under mu: new Timeouts are refused
	// Number of times a pending Timeout began to run, less those also in cancelled.
	left    atomic.Int64
	expired atomic.Int64 // runs of tasks

	added inbox // new Timeouts, cancelled or not

	dropped inbox        // cancelled Timeouts that are not new
	unread  atomic.Int64 // number of Timeouts that are in dropped, or about to be

	_ [64]byte // keeps the shards in different cache lines
}

// An inbox is a stack of Timeouts that one goroutine empties and any may add to.
type inbox struct {
	top atomic.Pointer[Timeout] // linked by next

	_ [64]byte // keeps it in a cache line of its own
}

// post adds a Timeout, and reports whether another goroutine interfered.
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

// readAtOnce is the number of Timeouts that a processor posts before it reads the inbox, unless
// another one is reading it. The cache misses of a batch overlap.
const readAtOnce = blockIDs

// accept posts a new Timeout. It reports false if the shard is closed, and whether another
// goroutine interfered.
func (s *shard) accept(t *Timeout, read bool) (accepted, contended bool) {
	if s.closed.Load() {
		return false, false
	}
	contended = s.added.post(t)
	if read {
		s.tryRead()
	}
	if !s.closed.Load() {
		return true, contended // a later close reads the inbox
	}
	word := t.word.Load()
	refuse := isNew(word) && t.word.CompareAndSwap(word, withState(word, refused))
	return !refuse, contended // if not refused, close has read it
}

// drop posts a cancelled Timeout for removal from the wheel. New ones need no removal: takeInLocked
// sees that they are cancelled.
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
		return // accept refuses it
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

// reenter makes a running Timeout pending again. It reports false if the Timeout was cancelled or
// the shard is closed. If the Timeout runs again at once, it is not put into the wheel.
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

// nextDue returns the instant at which the next slot with Timeouts comes up.
func (s *shard) nextDue() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readLocked()
	return s.wheel.nextDue()
}

// counts returns the number of Timeouts that are pending, were scheduled, and were cancelled.
func (s *shard) counts() (pending, scheduled, cancelled int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countsLocked()
}

func (s *shard) countsLocked() (pending, scheduled, cancelled int64) {
	s.readLocked()
	// Last: cancel subtracts a running Timeout here before it posts it to the inbox.
	left := s.left.Load()
	return s.entered - left - s.cancelled, s.scheduled, s.cancelled
}

// hasten files a Timeout again after a Reset to an earlier deadline. A Timeout in no wheel is about
// to be filed or run anyway.
func (s *shard) hasten(t *Timeout) {
	s.mu.Lock()
	deadline := deadlineOf(t.word.Load()) // the latest, if several goroutines reset it
	if t.place != (place{}) {
		s.wheel.remove([]*Timeout{t})
		s.wheel.file(t, deadline)
	}
	s.mu.Unlock()
	s.core.wakeFor(deadline)
}

// refile puts a pending Timeout that is in no wheel back. It reports false if the Timer was
// stopped: then the Timeout stays in place for Stop to find.
func (s *shard) refile(t *Timeout) bool {
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return false
	}
	// Under the lock: a later Reset finds it in the wheel.
	word := t.word.Load()
	// A cancelled one is dropped after the unlock.
	if stateOf(word) == pending && t.place == (place{}) {
		s.wheel.file(t, deadlineOf(word))
	}
	s.mu.Unlock()
	s.core.wakeFor(deadlineOf(word))
	return true
}

// collect moves up to collectAtOnce due Timeouts to the list to run, and reports whether there are
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

// forget clears the list of due Timeouts after they were run.
func (s *shard) forget() {
	s.mu.Lock()
	if !s.closed.Load() {
		clear(s.due)
		s.due, s.ran = s.due[:0], 0
	}
	s.mu.Unlock()
}

// collectAtOnce bounds the time for which the lock is held: about 5 microseconds.
const collectAtOnce = 256

// takeLocked is called by the wheel for each Timeout in a slot that has come up.
func (s *shard) takeLocked(t *Timeout) {
	word := t.word.Load()
	switch {
	case stateOf(word) != pending: // cancelled, and about to be dropped
	case deadlineOf(word) > s.now: // Reset to later
		s.wheel.file(t, deadlineOf(word))
	default:
		s.due = append(s.due, t)
	}
}

// close refuses further Timeouts and returns all Timeouts in the shard, in any state.
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
