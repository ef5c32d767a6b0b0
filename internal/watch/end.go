package watch

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// An End is what is known of a connection that was ended and is not closed yet.
type End struct {
	Reason  *reap.Error
	Told    mono.Time // the server was told to close the connection
	CloseAt mono.Time // the front end closes it then, or later after an outage
}

// Ends are the connections of a Shard that were ended and are not closed yet, by number. Not safe
// for concurrent use.
type Ends struct {
	watcher *Watcher
	all     map[uint32]*End
}

// Of returns the End of a connection, nil if it has none.
func (e *Ends) Of(id uint32) *End {
	if len(e.all) == 0 {
		return nil
	}
	return e.all[id]
}

// Len returns the number of connections.
func (e *Ends) Len() int { return len(e.all) }

// Add adds a connection. It says whether the connection was observed before.
func (e *Ends) Add(id uint32, observed bool, reason *reap.Error) *End {
	if !observed { // otherwise it is counted already
		e.watcher.Decided.Add(1)
	}
	end := &End{Reason: reason, CloseAt: verdict.Never}
	e.all[id] = end
	return end
}

// End closes a connection. With ObserveOnly it only counts and logs the connection.
func (s *Shard[C]) End(id uint32, c *Conn[C], reason *reap.Error) {
	s.catchUp()
	s.end(id, c, reason)
}

// end is End by the settings that are followed.
func (s *Shard[C]) end(id uint32, c *Conn[C], reason *reap.Error) {
	switch {
	case s.Ends.Of(id) != nil, s.Set.ObserveOnly && c.Is(connstate.Observed):
	case s.Set.ObserveOnly:
		s.Observe(c, reason)
	default:
		s.LogReap(c, reason)
		s.port.Close(id, c, reason)
	}
}

// silentAtOnce bounds each of the maps of silentReaps.
const silentAtOnce = 1 << 9

// SilentReaps are the connections that were reaped last because their peers were silent: at least
// silentAtOnce of them. They count as busy ones in a silence of many: the first connections may be
// reaped before the silence is noticed, and the others may be too few to notice it. Safe for
// concurrent use.
type silentReaps struct {
	mu           sync.Mutex // guards the fields below
	last, before map[reapedConn]silentReap
}

// A reapedConn is the name of a connection that is closed, perhaps.
type reapedConn struct {
	shard, id uint32
	opened    mono.Packed
}

// A silentReap has the last byte of a connection, and its end.
type silentReap struct{ heard, at mono.Time }

func (all *silentReaps) note(c reapedConn, r silentReap) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.last) == silentAtOnce {
		all.last, all.before = nil, all.last
	}
	if all.last == nil {
		all.last = make(map[reapedConn]silentReap)
	}
	all.last[c] = r
}

// of returns the end of a connection, or none.
func (all *silentReaps) of(c reapedConn) silentReap {
	all.mu.Lock()
	defer all.mu.Unlock()
	return cmp.Or(all.last[c], all.before[c])
}

// busyIn returns how many connections were busy in the period of a Count, and reaped since.
func (all *silentReaps) busyIn(c *outage.Count, clock *mono.Clock, now mono.Time) (n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, reaps := range [...]map[reapedConn]silentReap{all.last, all.before} {
		for conn, r := range reaps {
			if r.at > c.To && r.heard >= c.From && r.heard <= c.To.Add(heardSlack) && clock.Unpack(conn.opened, now) <= c.From {
				n++
			}
		}
	}
	return n
}

// reapedSince reports whether a connection was reaped after an instant, and at most one timeout
// ago. It returns when the peer was heard last.
func (s *Shard[C]) reapedSince(after mono.Time, id uint32, opened mono.Packed) (heard mono.Time, ok bool) {
	r := s.Watcher.silent.of(reapedConn{s.Number, id, opened})
	return r.heard, r.at > max(after, s.clock.Elapsed().Add(-s.Watcher.Rule().Longest))
}

// LogReap logs that a connection is closed.
func (s *Shard[C]) LogReap(c *Conn[C], reason *reap.Error) {
	s.Set.log(slog.LevelDebug, "reaping connection", s.Remotes.of(c, s.port), reason)
}

// Observe counts and logs a connection that would be closed without ObserveOnly.
func (s *Shard[C]) Observe(c *Conn[C], reason *reap.Error) {
	c.Spare(connstate.Observed, true)
	s.Watcher.Decided.Add(1)
	s.Counters.Observed[reason.Reason]++
	s.Set.log(slog.LevelInfo, "would reap connection", s.Remotes.of(c, s.port), reason)
}

// Kick closes the connection with a number and a tag, with ObserveOnly too. It reports false if
// there is none.
func (s *Shard[C]) Kick(id, tag uint32) (found bool) {
	if id >= s.Len() {
		return false
	}
	s.catchUp()
	c := s.conns.at(id)
	if !c.Used() || s.tag(c) != tag || s.Ends.Of(id) != nil {
		return false
	}
	reason := s.Watcher.NewError(reap.Kicked)
	s.LogReap(c, reason)
	s.port.Close(id, c, reason)
	return true
}

// CountReap counts a connection that was reaped, and keeps the record of it.
func (s *Shard[C]) CountReap(id uint32, c *Conn[C], reason *reap.Error) {
	now := s.clock.Elapsed()
	s.Counters.Reaped[reason.Reason]++
	if reason.Reason <= verdict.LastDue { // the other reasons have no deadline
		s.Counters.Lateness.Observe(reason.Late)
	}
	switch reason.Reason {
	case reap.ReadIdle, reap.AllIdle, reap.HeartbeatTimeout:
		s.CountLastSilence(id, c, true)
		// Only bytes count: a Touch says nothing about the peer.
		heard := s.clock.Before(s.port.Record(c).Heard.Unwrap(s.clock.Stamp()), now)
		s.Watcher.silent.note(reapedConn{s.Number, id, c.Opened()}, silentReap{heard, now})
	}
	keep := s.Watcher.Settings().KeepClosed // an Update has dropped what is above it
	if keep == 0 {
		return
	}
	opened := s.clock.Unpack(c.Opened(), now)
	s.Watcher.Closed.Add(reap.Closed{
		ID: s.ID(id, c), At: time.Now(), Age: max(now.Sub(opened), reason.Lasted), Remote: s.Remotes.of(c, s.port), Err: reason,
	}, keep)
}

// Silence asks the kernel about a connection. It returns how long the peer was silent, and how long
// nothing was sent in either direction; 0 if the connection has ended. It reports whether the peer
// was heard later than the Shard knew.
func (s *Shard[C]) Silence(id uint32, c *Conn[C]) (peer, both time.Duration, news bool) {
	now, open := looker[C]{s}.askKernel(id, c)
	ev, f := &s.evidence, s.Facts(id, c, now)
	if !open || ev.Found == verdict.Ended {
		return 0, 0, false
	}
	news = s.LimitsOf(c).Hear(&f, ev, now)
	asked := now.Add(-ev.Took)
	peer, both = asked.Sub(f.Heard.To), asked.Sub(f.Wrote.To)
	if ev.Dated {
		peer = min(peer, ev.Silent-ev.Step)
	}
	if ev.Dated && !ev.Resent {
		both = min(both, ev.Quiet-ev.Step)
	}
	return max(peer, 0), max(min(both, peer), 0), news
}

// Quiet returns for how long nothing was sent in either direction, and 0 while output waits in the
// kernel.
func (s *Shard[C]) Quiet(id uint32, c *Conn[C]) time.Duration {
	_, both, _ := s.Silence(id, c)
	if s.evidence.Queued > 0 {
		return 0
	}
	return both
}

func (set *Settings) log(level slog.Level, text string, remote net.Addr, reason *reap.Error) {
	if log := set.Logger; log.Enabled(context.Background(), level) {
		attrs := []any{"remote", NameOf(remote), "reason", reason.Reason,
			"lasted", reason.Lasted, "limit", reason.Limit, "late", reason.Late}
		if reason.LimitBytes > 0 {
			attrs = append(attrs, "bytes", reason.Bytes, "bytes-limit", reason.LimitBytes)
		}
		log.Log(context.Background(), level, text, attrs...)
	}
}

// NameOf returns an address as text. A JSON log would show the fields of the value.
func NameOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

// A ClosedRing keeps the connections that were reaped last. Safe for concurrent use.
type ClosedRing struct {
	mu   sync.Mutex
	kept []reap.Closed // guarded by mu; in the order of Add
}

// Add adds an entry. If there are more than keep, the oldest are dropped.
func (c *ClosedRing) Add(one reap.Closed, keep int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, one) // which moves the entries to new memory when the old one is full
	c.kept = c.kept[max(len(c.kept)-keep, 0):]
}

// Keep drops the oldest entries if there are more than n.
func (c *ClosedRing) Keep(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append([]reap.Closed(nil), c.kept[max(len(c.kept)-n, 0):]...) // frees the others
}

// Newest returns the newest entries, at most n, in descending order of time.
func (c *ClosedRing) Newest(n int) []reap.Closed {
	c.mu.Lock()
	all := slices.Clone(c.kept)
	c.mu.Unlock() // sorting may take 10 ms
	slices.SortFunc(all, func(a, b reap.Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), n)]
}
