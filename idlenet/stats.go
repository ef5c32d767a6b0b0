package idlenet

import (
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

type counters = counts.Counters

// monitorStats are what the goroutine that judges has counted, for other goroutines.
type monitorStats struct {
	outages uint64
	time    time.Duration
	holds   uint64
	holding bool
	lag     time.Duration // the greatest of the last windows
}

// Stats returns a snapshot of the counters. What is not known without a call for each message is 0:
// Reads, ClosedByPeer, Failed.
func (l *Listener) Stats() Stats {
	var all counters
	var byHandler uint64 // an ended connection counts as reaped before it is closed
	for _, s := range l.shards {
		s.mu.Lock()
		all.Add(&s.counters)
		byHandler += s.counters.ClosedByHandler
		all.Entries += s.wheel.Len()
		s.mu.Unlock()
	}
	stats := all.Export()
	stats.ClosedByHandler = byHandler
	stats.Connections, stats.Refused = l.Connections(), l.refused.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	stats.Updates = l.updates
	m := &l.monitor
	stats.Outages, stats.OutageTime, stats.Holds = m.outages, m.time, m.holds
	stats.Holding, stats.DriverLag = m.holding && l.judging, m.lag
	return stats
}

// addClosed keeps the record of a connection that has ended.
func (s *shard) addClosed(id uint32, n *conn, reason *ReapError, keep int, now mono.Time) {
	if keep == 0 {
		return
	}
	opened := s.listener.clock.Unpack(n.Opened(), now)
	s.listener.closed.Add(reap.Closed{
		ID: s.connID(id, n), At: time.Now(), Age: max(now.Sub(opened), reason.Lasted), Remote: n.conn.RemoteAddr(), Err: reason,
	}, keep)
}

// lastClosed returns the connections that ended last, in descending order of time.
func (l *Listener) lastClosed() []reap.Closed {
	return counts.Newest(slices.Clone(l.closed.Read()), l.settings.Load().cfg.KeepClosed)
}
