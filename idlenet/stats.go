package idlenet

import "github.com/idlewheel/idlewheel/internal/watch"

// Stats returns a snapshot of the counters. What is not known without a call for each message is 0:
// Reads, ClosedByPeer, Failed.
func (l *Listener) Stats() Stats {
	var all watch.Counters
	var byHandler uint64 // an ended connection counts as reaped before it is closed
	for _, s := range l.shards {
		s.mu.Lock()
		all.Add(&s.Counters)
		byHandler += s.Counters.ClosedByHandler
		all.Entries += s.Schedule.Len()
		s.mu.Unlock()
	}
	stats := all.Export()
	stats.ClosedByHandler = byHandler
	stats.Connections, stats.Refused = l.Connections(), l.refused.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch.Complete(&stats, l.driving)
	return stats
}
