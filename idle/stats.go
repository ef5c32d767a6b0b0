package idle

import (
	"slices"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/mono"
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

// counters are the Stats of one loop, or the sum of several.
type counters = counts.Counters

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
func (l *loop) publish(now mono.Stamp) {
	l.publishedAt = now
	l.counters.Connections, l.counters.Entries = l.open, l.wheel.Len()
	l.published.mu.Lock()
	l.published.stats = l.counters
	l.published.mu.Unlock()
}

// Closed is the record of a reaped connection. See [reap.Closed].
type Closed = reap.Closed

// closed returns the connections that were reaped last, in descending order of time.
func (r *Reaper) closed() []Closed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.pastClosed)
	for _, l := range r.registry.Load().loops {
		all = append(all, l.closed.Read()...)
	}
	return counts.Newest(all, r.settings.Load().cfg.KeepClosed)
}

// addClosed keeps the record of a reaped connection.
func (l *loop) addClosed(id uint32, s *state, reason *ReapError) {
	keep := l.set.cfg.KeepClosed
	if keep == 0 {
		return
	}
	now := l.clock.Elapsed()
	opened := l.clock.Unpack(s.Opened(), now)
	l.closed.Add(Closed{
		ID: l.connID(id, s), At: time.Now(), Age: max(now.Sub(opened), reason.Lasted), Remote: l.remote(s), Err: reason,
	}, keep)
}
