package wheel

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// TimerStats is a snapshot of the counters of a Timer.
type TimerStats struct {
	Pending   int    // Timeouts now
	Scheduled uint64 // Timeouts made; a periodic one counts once
	Expired   uint64 // runs of tasks
	Cancelled uint64 // by Cancel, Stop, DropMissed or OnRefused
	Panics    uint64 // of tasks
	Refused   uint64 // by executors; the same Timeout may be refused again
	Slow      uint64 // runs that took longer than SlowAfter
	Missed    uint64 // runs that were later than MissedAfter, including the dropped ones
	Dropped   uint64 // runs that DropMissed has dropped

	// Lateness is a histogram of the time between the deadline of a run and its beginning.
	// Lateness[i] counts the runs that were less than 2^i microseconds late and are not in a lower
	// bucket. The last bucket also counts all later runs.
	Lateness [LatenessBuckets]uint64
}

// LatenessBuckets is the number of buckets of TimerStats.Lateness. The second to last ends at 17
// minutes.
const LatenessBuckets = 32

// tally has the counters that change rarely, or on one goroutine at a time.
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
	last atomic.Int64 // the instant of the last warning
}

// warn logs a warning, at most one per second.
func (l *limiter) warn(c *core, message string, args ...any) {
	now := int64(c.now())
	if last := l.last.Load(); last != 0 && now-last < int64(time.Second) || !l.last.CompareAndSwap(last, now) {
		return
	}
	c.cfg.Logger.Warn(message, args...)
}

// Stats returns a snapshot of the counters. Concurrent events may be included or not.
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

// Slots returns the slots that hold Timeouts, see [Wheel.Slots]. Each processor has its own wheel,
// so the same slot may appear once for each. Cancelled Timeouts do not count.
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
