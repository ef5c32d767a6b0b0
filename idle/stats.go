package idle

import (
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"
)

// Stats is a snapshot of what a Reaper has seen and done since it was made. Opened, Closed and what is reaped are exact.
// Reads of the current tick appear with the next message, open, close or task of their event loop, which is at most one
// timeout later.
type Stats struct {
	Connections   int           // watched now
	Opened        uint64        // connections watched so far
	Closed        uint64        // of them, closed for whatever reason
	Reads         uint64        // calls of OnTraffic with new bytes from the peer
	Rescheduled   uint64        // looks at connections that were in order
	Events        Counts        // idle events
	Pings         uint64        // heartbeats asked for
	Missed        uint64        // of them, those that were not answered in time
	SavedByKernel uint64        // connections that seemed dead, but the kernel had bytes of the peer
	Reaped        Counts        // connections closed by the Reaper
	Observed      Counts        // connections that it would have closed, but for Config.ObserveOnly
	ClosedByPeer  uint64        // connections that the peer has ended (FIN)
	Failed        uint64        // connections that ended with an error, such as a reset
	Refused       uint64        // connections for which there was no room, and of which the handler was told nothing
	Lateness      LatenessStats // of the reaps
	Entries       int           // in the wheels
	Updates       uint64        // changes of the Config, by Update and Change

	// PutOff counts the judgements that an outage has put off: the deadline of a connection had passed,
	// and the server could not have heard its peer. A connection may be judged several times.
	PutOff uint64
	// Outages counts the times in which the server could not hear its peers: its process was stopped,
	// its machine was paused, or its network was down.
	Outages    uint64
	OutageTime time.Duration // the length of all of them
	// Holds counts how often verdicts were held because nothing was heard any more from connections
	// that had been busy together. Holding is true while they are.
	Holds   uint64
	Holding bool

	// Behind is by how much the event loop that has most to do is behind with it: 0 unless more was due than fits in a task.
	Behind time.Duration
	// DriverLag is how late the driver was at worst in the last ten to twenty seconds, in which the process may have been stopped or
	// short of CPU.
	DriverLag time.Duration
}

// ClosedByHandler returns how many connections the handler has closed, or the end of the engine.
func (s Stats) ClosedByHandler() uint64 {
	return s.Closed - s.Reaped.Total() - s.ClosedByPeer - s.Failed
}

// Counts has a number for each [Reason]. The zero Counts has only zeros.
type Counts struct{ of [reasons]uint64 }

// Of returns the number for a reason, 0 if there is no such reason.
func (c Counts) Of(r Reason) uint64 {
	if !r.valid() {
		return 0
	}
	return c.of[r]
}

// All returns all reasons with their numbers, zeros included, always in the same order.
func (c Counts) All() iter.Seq2[Reason, uint64] {
	return func(yield func(Reason, uint64) bool) {
		for r := firstReason; r <= lastReason; r++ {
			if !yield(r, c.of[r]) {
				return
			}
		}
	}
}

// Add adds n to the number for a reason. It does nothing if there is no such reason.
func (c *Counts) Add(r Reason, n uint64) {
	if r.valid() {
		c.of[r] += n
	}
}

// Total returns the sum over all reasons.
func (c Counts) Total() (n uint64) {
	for _, of := range c.of {
		n += of
	}
	return n
}

// MarshalJSON returns an object with the numbers that are not zero, by the names of their reasons.
func (c Counts) MarshalJSON() ([]byte, error) {
	some := map[Reason]uint64{}
	for r, n := range c.All() {
		if n > 0 {
			some[r] = n
		}
	}
	return json.Marshal(some)
}

// UnmarshalJSON reads what MarshalJSON has returned.
func (c *Counts) UnmarshalJSON(b []byte) error {
	var some map[Reason]uint64
	if err := json.Unmarshal(b, &some); err != nil {
		return err
	}
	*c = Counts{}
	for r, n := range some {
		c.of[r] = n
	}
	return nil
}

// LatenessStats says how long after their deadlines connections were reaped.
type LatenessStats struct {
	Count    uint64
	Sum, Max time.Duration
	Buckets  [len(latenessBounds) + 1]uint64 // by LatenessBounds, the last for what is above all of them
}

// latenessBounds are fine up to two default ticks, which is what is promised.
var latenessBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// LatenessBounds returns the longest lateness that is counted in each of the buckets of LatenessStats but the last.
func LatenessBounds() []time.Duration { return slices.Clone(latenessBounds[:]) }

func (l *LatenessStats) count(late time.Duration) {
	l.Count++
	l.Sum += late
	l.Max = max(l.Max, late)
	i := 0
	for i < len(latenessBounds) && late > latenessBounds[i] {
		i++
	}
	l.Buckets[i]++
}

func (l *LatenessStats) add(o *LatenessStats) {
	l.Count += o.Count
	l.Sum += o.Sum
	l.Max = max(l.Max, o.Max)
	for i := range l.Buckets {
		l.Buckets[i] += o.Buckets[i]
	}
}

// Mean returns the mean lateness, 0 if there is none.
func (l LatenessStats) Mean() time.Duration {
	if l.Count == 0 {
		return 0
	}
	return l.Sum / time.Duration(l.Count)
}

// counters is a Stats under construction, owned by a loop goroutine.
type counters struct{ Stats }

func (c *counters) reaped(reason *ReapError) {
	c.Reaped.of[reason.Reason]++
	if reason.Reason > lastDue { // it had no deadline
		return
	}
	c.Lateness.count(reason.Late)
}

// ended counts a connection that was not reaped, by the error that gnet has passed.
func (c *counters) ended(err error) {
	switch {
	case errors.Is(err, io.EOF):
		c.ClosedByPeer++
	case err != nil:
		c.Failed++
	}
}

// add adds the counts of another part of the Reaper.
func (s *Stats) add(o Stats) {
	s.Connections += o.Connections
	s.Opened += o.Opened
	s.Closed += o.Closed
	s.Reads += o.Reads
	s.Rescheduled += o.Rescheduled
	s.Pings += o.Pings
	s.Missed += o.Missed
	s.SavedByKernel += o.SavedByKernel
	s.ClosedByPeer += o.ClosedByPeer
	s.Failed += o.Failed
	s.Refused += o.Refused
	s.PutOff += o.PutOff
	s.Entries += o.Entries
	for k := range s.Reaped.of {
		s.Events.of[k] += o.Events.of[k]
		s.Reaped.of[k] += o.Reaped.of[k]
		s.Observed.of[k] += o.Observed.of[k]
	}
	s.Lateness.add(&o.Lateness)
	s.Behind = max(s.Behind, o.Behind)
}

// published is the copy of a loop's counters that others may read. It is made once per tick, since an atomic addition
// per message would cost as much as all the rest of a heartbeat.
type published struct {
	mu    sync.Mutex
	stats Stats // guarded by mu
}

func (p *published) read() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// publish makes the counters visible.
func (l *loop) publish(now int64) {
	l.counted = now
	l.counters.Connections, l.counters.Entries = l.open, l.wheel.Len()
	l.published.mu.Lock()
	l.published.stats = l.counters.Stats
	l.published.mu.Unlock()
}
