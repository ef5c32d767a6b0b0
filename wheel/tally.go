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
	Missed    uint64 // Timeouts that were later than MissedAfter
	Dropped   uint64 // of them, those that DropMissed has cancelled

	// Lateness counts runs by how long after their deadlines they began: Lateness[i] those that were less than 2^i
	// microseconds late and belong to no lower i; the last one also counts all that were later.
	Lateness [LatenessBuckets]uint64
}

// LatenessBuckets is the number of buckets of TimerStats.Lateness. The last but one ends at 17 minutes.
const LatenessBuckets = 32

// tally counts what happens seldom, or on one goroutine at a time.
type tally struct {
	panics, refused, slow, missed, dropped atomic.Uint64
	lateness                               [LatenessBuckets]atomic.Uint64
	warned                                 atomic.Int64 // when a warning was logged last
}

func (y *tally) late(by time.Duration) {
	y.lateness[min(bits.Len64(uint64(max(by, 0)/time.Microsecond)), LatenessBuckets-1)].Add(1)
}

// warn logs a warning, at most one per second.
func (y *tally) warn(c *core, message string, args ...any) {
	now := c.now()
	if last := y.warned.Load(); last != 0 && now-last < int64(time.Second) || !y.warned.CompareAndSwap(last, now) {
		return
	}
	c.cfg.Logger.Warn(message, args...)
}

// Stats returns a snapshot of the counters. Those of events that happen meanwhile may be in or not.
func (t *Timer) Stats() TimerStats {
	s := TimerStats{
		Pending: t.Pending(),
		Panics:  t.tally.panics.Load(), Refused: t.tally.refused.Load(), Slow: t.tally.slow.Load(),
		Missed: t.tally.missed.Load(), Dropped: t.tally.dropped.Load(),
	}
	for _, shard := range t.shards {
		s.Scheduled += uint64(shard.scheduled.Load())
		s.Expired += uint64(shard.expired.Load())
		s.Cancelled += uint64(shard.cancelled.Load())
	}
	for i := range s.Lateness {
		s.Lateness[i] = t.tally.lateness[i].Load()
	}
	return s
}

// Slots returns how many entries are in each slot that holds any, see [Wheel.Slots]. Each processor has its own wheel, so
// the same slot may appear once for each.
func (t *Timer) Slots() (slots []Slot) {
	for _, s := range t.shards {
		s.mu.Lock()
		for slot := range s.wheel.Slots() {
			slots = append(slots, slot)
		}
		s.mu.Unlock()
	}
	return slots
}
