package timer

import "time"

// Stats is a snapshot of the counters of a Timer. All of them are of the same instant.
type Stats struct {
	Pending   int    // see Timer.Pending
	Scheduled uint64 // calls of AfterFunc and Every, and of Reset that made a Timeout pending again
	Runs      uint64 // of tasks that have begun
	Stopped   uint64 // pending Timeouts that Stop or Shutdown has stopped
	Missed    uint64 // skipped runs, and points of a grid without a run
	Panics    uint64 // runs that ended by a panic or runtime.Goexit
	Refused   uint64 // refusals of executors; one Timeout may be refused repeatedly
	Slow      uint64 // runs longer than Config.SlowAfter

	// MaxLate is the greatest time so far between the deadline of a run and its beginning, with the
	// time in the queue of an executor.
	MaxLate time.Duration
}

// Stats returns the counters. It locks the Timer for a moment.
func (t *Timer) Stats() Stats { return t.core.stats() }

func (c *core) stats() (sum Stats) {
	c.lockAll()
	defer c.unlockAll()
	for _, s := range c.shards {
		sum.Pending += s.stats.Pending
		sum.Scheduled += s.stats.Scheduled
		sum.Runs += s.stats.Runs
		sum.Stopped += s.stats.Stopped
		sum.Missed += s.stats.Missed
		sum.Panics += s.stats.Panics
		sum.Refused += s.stats.Refused
		sum.Slow += s.stats.Slow
		sum.MaxLate = max(sum.MaxLate, s.stats.MaxLate)
	}
	return sum
}
