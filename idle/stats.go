package idle

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/reap"
)

// Stats holds the counters of a Reaper since its start. Opened, Closed and Reaped are exact. Reads
// of the current tick appear with the next message, open, close or task of their event loop, which
// is at most one timeout later. See [reap.Stats] for the fields.
type Stats = reap.Stats

// Counts has an entry for each [Reason], also if its number is 0. See [reap.Counts].
type Counts = reap.Counts

// LatenessStats is a histogram of the times from the deadlines of connections until their reaping.
// See [reap.LatenessStats].
type LatenessStats = reap.LatenessStats

// latenessBounds are finest up to two default ticks, the promised precision.
var latenessBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// reasonCounts are the Counts of one loop.
type reasonCounts [reasons]uint64

func (c *reasonCounts) export() Counts {
	all := make(Counts, lastReason)
	for r := firstReason; r <= lastReason; r++ {
		all[r] = c[r]
	}
	return all
}

func (c *reasonCounts) add(o *reasonCounts) {
	for r := range c {
		c[r] += o[r]
	}
}

// latenessCounts are the LatenessStats of one loop.
type latenessCounts struct {
	count    uint64
	sum, max time.Duration
	buckets  [len(latenessBounds) + 1]uint64
}

func (l *latenessCounts) observe(late time.Duration) {
	l.count++
	l.sum += late
	l.max = max(l.max, late)
	i := 0
	for i < len(latenessBounds) && late > latenessBounds[i] {
		i++
	}
	l.buckets[i]++
}

func (l *latenessCounts) add(o *latenessCounts) {
	l.count += o.count
	l.sum += o.sum
	l.max = max(l.max, o.max)
	for i := range l.buckets {
		l.buckets[i] += o.buckets[i]
	}
}

func (l *latenessCounts) export() LatenessStats {
	return LatenessStats{
		Count: l.count, Sum: l.sum, Max: l.max,
		Buckets: slices.Clone(l.buckets[:]), Bounds: slices.Clone(latenessBounds[:]),
	}
}

// counters are the Stats of one loop, or the sum of several.
type counters struct {
	Stats                    // except for the fields that export sets
	events, reaped, observed reasonCounts
	lateness                 latenessCounts
}

// countReap counts a connection that the Reaper has closed.
func (c *counters) countReap(reason *ReapError) {
	c.reaped[reason.Reason]++
	if reason.Reason <= lastDue { // the other reasons have no deadline
		c.lateness.observe(reason.Late)
	}
}

// export completes the Stats.
func (c *counters) export() Stats {
	s := c.Stats
	s.Events, s.Reaped, s.Observed = c.events.export(), c.reaped.export(), c.observed.export()
	s.Lateness = c.lateness.export()
	s.ClosedByHandler = s.Closed - s.Reaped.Total() - s.ClosedByPeer - s.Failed
	return s
}

// countEnd counts a connection that the Reaper did not close, by the error of gnet.
func (c *counters) countEnd(err error) {
	switch {
	case errors.Is(err, io.EOF):
		c.ClosedByPeer++
	case err != nil:
		c.Failed++
	}
}

// add adds the counters of another loop.
func (c *counters) add(o *counters) {
	c.Connections += o.Connections
	c.Opened += o.Opened
	c.Closed += o.Closed
	c.Reads += o.Reads
	c.Rescheduled += o.Rescheduled
	c.Pings += o.Pings
	c.Missed += o.Missed
	c.SavedByKernel += o.SavedByKernel
	c.ClosedByPeer += o.ClosedByPeer
	c.Failed += o.Failed
	c.Refused += o.Refused
	c.PutOff += o.PutOff
	c.Entries += o.Entries
	c.Behind = max(c.Behind, o.Behind)
	c.events.add(&o.events)
	c.reaped.add(&o.reaped)
	c.observed.add(&o.observed)
	c.lateness.add(&o.lateness)
}

// published is the copy of a loop's counters for other goroutines. It is made once per tick: an
// atomic addition per message would cost as much as the rest of a heartbeat.
type published struct {
	mu    sync.Mutex
	stats counters // guarded by mu
}

func (p *published) read() *counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return new(p.stats)
}

// publish copies the counters for other goroutines.
func (l *loop) publish(now coarse.Stamp) {
	l.publishedAt = now
	l.counters.Connections, l.counters.Entries = l.open, l.wheel.Len()
	l.published.mu.Lock()
	l.published.stats = l.counters
	l.published.mu.Unlock()
}

// Closed is the record of a reaped connection.
type Closed struct {
	ID     ConnID // of ConnInfo while it was open
	At     time.Time
	Age    time.Duration
	Remote net.Addr
	Err    *ReapError
}

// closed returns the connections that were reaped last, in descending order of time.
func (r *Reaper) closed() []Closed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.pastClosed)
	for _, l := range r.registry.Load().loops {
		all = append(all, l.closed.read()...)
	}
	return newest(all, r.settings.Load().cfg.KeepClosed)
}

// newest returns the newest entries, at most keep, in descending order of time.
func newest(all []Closed, keep int) []Closed {
	slices.SortFunc(all, func(a, b Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), keep)]
}

// A closedRing keeps the last reaped connections of a loop. Safe for concurrent use.
type closedRing struct {
	mu   sync.Mutex
	kept []Closed // guarded by mu
	next int      // guarded by mu; index of the oldest entry if the ring is full
	keep int      // guarded by mu; the capacity
}

func (c *closedRing) add(l *loop, id uint32, s *state, reason *ReapError) {
	keep := l.set.cfg.KeepClosed
	if keep == 0 {
		return
	}
	now := l.clock.Elapsed()
	opened := l.clock.Unpack(s.Opened(), now)
	one := Closed{
		ID: l.connID(id, s), At: time.Now(), Age: max(now.Sub(opened), reason.Lasted), Remote: l.remote(s), Err: reason,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep != c.keep { // Update has changed it
		c.kept, c.next, c.keep = newest(c.kept, keep), 0, keep
		slices.Reverse(c.kept)
	}
	if len(c.kept) < keep {
		c.kept = append(c.kept, one)
		return
	}
	c.kept[c.next] = one
	c.next = (c.next + 1) % keep
}

func (c *closedRing) read() []Closed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.kept)
}
