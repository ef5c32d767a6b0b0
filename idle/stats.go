package idle

import (
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
	Events        uint64        // idle events
	Pings         uint64        // heartbeats asked for
	SavedByKernel uint64        // connections that seemed dead, but the kernel had bytes of the peer
	Reaped        ReapCounts    // connections closed by the Reaper
	Observed      ReapCounts    // connections that it would have closed, but for Config.ObserveOnly
	Refused       uint64        // connections for which there was no room, and of which the handler was told nothing
	Lateness      LatenessStats // of the reaps

	// Behind is by how much the event loop that has most to do is behind with it: 0 unless more was due than fits in a task.
	Behind time.Duration
}

// ReapCounts is the number of reaped connections by [Kind].
type ReapCounts [kinds]uint64

// Total returns the sum over all kinds.
func (c ReapCounts) Total() (n uint64) {
	for _, of := range c {
		n += of
	}
	return n
}

// LatenessStats says how long after their deadlines connections were reaped.
type LatenessStats struct {
	Count    uint64
	Sum, Max time.Duration
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
	c.Reaped[reason.Kind]++
	if reason.Kind > lastDue { // it had no deadline
		return
	}
	c.Lateness.Count++
	c.Lateness.Sum += reason.Late
	c.Lateness.Max = max(c.Lateness.Max, reason.Late)
}

// add adds the counts of another part of the Reaper.
func (s *Stats) add(o Stats) {
	s.Connections += o.Connections
	s.Opened += o.Opened
	s.Closed += o.Closed
	s.Reads += o.Reads
	s.Rescheduled += o.Rescheduled
	s.Events += o.Events
	s.Pings += o.Pings
	s.SavedByKernel += o.SavedByKernel
	s.Refused += o.Refused
	for k := range s.Reaped {
		s.Reaped[k] += o.Reaped[k]
		s.Observed[k] += o.Observed[k]
	}
	s.Lateness.Count += o.Lateness.Count
	s.Lateness.Sum += o.Lateness.Sum
	s.Lateness.Max = max(s.Lateness.Max, o.Lateness.Max)
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
	l.counters.Connections = l.open
	l.published.mu.Lock()
	l.published.stats = l.counters.Stats
	l.published.mu.Unlock()
}
