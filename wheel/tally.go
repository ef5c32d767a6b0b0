package wheel

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// TimerStats is a snapshot of what a Timer has done since it was made.
type TimerStats struct {
	Pending   int    // Timeouts now
	Scheduled uint64 // by NewTimeout and the periodic ones, which count once
	Expired   uint64 // runs of tasks
	Cancelled uint64 // by Cancel, Stop, DropMissed or OnRefused
	Panics    uint64 // of tasks
	Refused   uint64 // by executors; the same Timeout may be refused again
	Slow      uint64 // runs that took longer than SlowAfter
	Missed    uint64 // runs that were later than MissedAfter, and those of the same Timeout that DropMissed has left out
	Dropped   uint64 // of them, those that DropMissed has left out

	// Lateness counts runs by how long after their deadlines they began: Lateness[i] those that were less than 2^i
	// microseconds late and belong to no lower i; the last one also counts all that were later.
	Lateness [LatenessBuckets]uint64
}

// LatenessBuckets is the number of buckets of TimerStats.Lateness. The last but one ends at 17 minutes.
const LatenessBuckets = 32

// tally counts what happens seldom, or on one goroutine at a time.
type tally struct {
	panics, refused, slow, missed, dropped   atomic.Uint64
	lateness                                 [LatenessBuckets]atomic.Uint64
	refusedWarned, slowWarned, droppedWarned limiter
}

func (y *tally) late(by time.Duration) {
	y.lateness[min(bits.Len64(uint64(max(by, 0)/time.Microsecond)), LatenessBuckets-1)].Add(1)
}

// A limiter keeps warnings of one kind from filling the log.
type limiter struct {
	last atomic.Int64 // when one was logged
}

// warn logs a warning, at most one per second.
func (l *limiter) warn(c *core, message string, args ...any) {
	now := int64(c.now())
	if last := l.last.Load(); last != 0 && now-last < int64(time.Second) || !l.last.CompareAndSwap(last, now) {
		return
	}
	c.cfg.Logger.Warn(message, args...)
}

// Stats returns a snapshot of the counters. Those of events that happen meanwhile may be in or not.
func (t *Timer) Stats() TimerStats {
	s := TimerStats{
		Panics: t.tally.panics.Load(), Refused: t.tally.refused.Load(), Slow: t.tally.slow.Load(),
		Missed: t.tally.missed.Load(), Dropped: t.tally.dropped.Load(),
	}
	s.Pending = t.pendingNow()
	for _, shard := range t.shards {
		_, scheduled, cancelled := shard.counts()
		s.Scheduled += uint64(scheduled)
		s.Cancelled += uint64(cancelled)
		s.Expired += uint64(shard.expired.Load())
	}
	for i := range s.Lateness {
		s.Lateness[i] = t.tally.lateness[i].Load()
	}
	return s
}

// Slots returns how many entries are in each slot that holds any, see [Wheel.Slots]. Each processor has its own wheel, so
// the same slot may appear once for each. Those that were cancelled are not in.
func (t *Timer) Slots() (slots []Slot) {
	for _, s := range t.shards {
		s.mu.Lock()
		s.readLocked()
		for slot := range s.wheel.slots(s.wheel.blocks.count) {
			slots = append(slots, slot)
		}
		s.mu.Unlock()
	}
	return slots
}
