package watch

import (
	"errors"
	"io"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// latenessBounds are finest up to two default ticks, the promised precision.
var latenessBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Reasons are Counts without a map.
type Reasons [verdict.Last + 1]uint64

func (c *Reasons) Export() reap.Counts {
	all := make(reap.Counts, verdict.Last)
	for r := verdict.First; r <= verdict.Last; r++ {
		all[r] = c[r]
	}
	return all
}

func (c *Reasons) Add(o *Reasons) {
	for r := range c {
		c[r] += o[r]
	}
}

// Lateness are LatenessStats without allocations.
type Lateness struct {
	count    uint64
	sum, max time.Duration
	buckets  [len(latenessBounds) + 1]uint64
}

func (l *Lateness) Observe(late time.Duration) {
	l.count++
	l.sum += late
	l.max = max(l.max, late)
	i, _ := slices.BinarySearch(latenessBounds[:], late)
	l.buckets[i]++
}

func (l *Lateness) Add(o *Lateness) {
	l.count += o.count
	l.sum += o.sum
	l.max = max(l.max, o.max)
	for i := range l.buckets {
		l.buckets[i] += o.buckets[i]
	}
}

func (l *Lateness) Export() reap.LatenessStats {
	return reap.LatenessStats{
		Count: l.count, Sum: l.sum, Max: l.max,
		Buckets: slices.Clone(l.buckets[:]), Bounds: slices.Clone(latenessBounds[:]),
	}
}

// Counters are the Stats of a part of the connections, or the sum of several parts. Not safe for
// concurrent use.
type Counters struct {
	reap.Stats               // except for the fields that Watcher.Stats sets
	Events, Reaped, Observed Reasons
	Lateness                 Lateness
}

// countStay counts a connection that a look leaves open.
func (c *Counters) countStay(v verdict.Verdict) {
	c.Rescheduled++
	if v.PutOff {
		c.Postponed++
	}
}

// CountEnd counts a connection that was closed and not reaped, by the error of gnet.
func (c *Counters) CountEnd(err error) {
	switch {
	case errors.Is(err, io.EOF):
		c.ClosedByPeer++
	case err != nil:
		c.Failed++
	default:
		c.ClosedByHandler++
	}
}

// Add adds the counters of another part.
func (c *Counters) Add(o *Counters) {
	c.Connections += o.Connections
	c.Opened += o.Opened
	c.Closed += o.Closed
	c.Reads += o.Reads
	c.Rescheduled += o.Rescheduled
	c.Pings += o.Pings
	c.Missed += o.Missed
	c.SparedUnread += o.SparedUnread
	c.ClosedByPeer += o.ClosedByPeer
	c.ClosedByHandler += o.ClosedByHandler
	c.Failed += o.Failed
	c.Refused += o.Refused
	c.RefusedBySource += o.RefusedBySource
	c.RefusedByRate += o.RefusedByRate
	c.Postponed += o.Postponed
	c.Entries += o.Entries
	c.Unwritable += o.Unwritable
	c.LoopDelay = max(c.LoopDelay, o.LoopDelay)
	c.Events.Add(&o.Events)
	c.Reaped.Add(&o.Reaped)
	c.Observed.Add(&o.Observed)
	c.Lateness.Add(&o.Lateness)
}
