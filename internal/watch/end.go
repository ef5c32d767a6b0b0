package watch

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// End closes a connection. With ObserveOnly it only counts and logs the connection.
func (s *Shard[C]) End(id uint32, c *Conn[C], reason *reap.Error) {
	switch {
	case s.Ends.Of(id) != nil:
	case s.Set.ObserveOnly:
		s.Observe(c, reason)
	default:
		s.LogReap(c, reason)
		s.port.Close(id, c, reason)
	}
}

// LogReap logs that a connection is closed.
func (s *Shard[C]) LogReap(c *Conn[C], reason *reap.Error) {
	s.log(slog.LevelDebug, "reaping connection", c, reason)
}

// Observe counts and logs a connection that would be closed without ObserveOnly.
func (s *Shard[C]) Observe(c *Conn[C], reason *reap.Error) {
	c.SetObserved(true)
	s.Watcher.Decided.Add(1)
	s.Counters.Observed[reason.Reason]++
	s.log(slog.LevelInfo, "would reap connection", c, reason)
}

// Kick closes the connection with a number that was opened at an instant, with ObserveOnly too. It
// reports false if there is none.
func (s *Shard[C]) Kick(id, opened uint32) (found bool) {
	if id >= s.conns.Len() {
		return false
	}
	c := s.conns.At(id)
	if !c.Used() || uint32(c.Opened()) != opened || s.Ends.Of(id) != nil {
		return false
	}
	reason := s.Watcher.NewError(reap.Kicked)
	s.LogReap(c, reason)
	s.port.Close(id, c, reason)
	return true
}

// CountReap counts a connection that was reaped, and keeps the record of it.
func (s *Shard[C]) CountReap(id uint32, c *Conn[C], reason *reap.Error) {
	s.Counters.CountReap(reason)
	keep := s.Set.KeepClosed
	if keep == 0 {
		return
	}
	now := s.clock.Elapsed()
	opened := s.clock.Unpack(c.Opened(), now)
	s.Watcher.Closed.Add(reap.Closed{
		ID: s.ID(id, c), At: time.Now(), Age: max(now.Sub(opened), reason.Lasted), Remote: s.port.Remote(c), Err: reason,
	}, keep)
}

// ID returns the name of a connection.
func (s *Shard[C]) ID(id uint32, c *Conn[C]) reap.ConnID {
	return newConnID(s.Number, id, uint32(c.Opened()))
}

// Silence asks the kernel about a connection. It returns how long the peer was silent, and how long
// nothing was sent in either direction; 0 if the connection has ended. It reports whether the peer
// was heard later than the Shard knew.
func (s *Shard[C]) Silence(id uint32, c *Conn[C]) (peer, both time.Duration, news bool) {
	now, open := s.askKernel(c)
	ev, f := &s.evidence, s.Facts(id, c, now)
	if !open || ev.Found == verdict.Ended {
		return 0, 0, false
	}
	news = s.LimitsOf(c).Hear(&f, ev, now)
	asked := now.Add(-ev.Took)
	peer, both = asked.Sub(f.Heard.To), asked.Sub(f.Wrote.To)
	if ev.Dated && ev.Received > 0 {
		peer = min(peer, ev.Silent-ev.Step)
	}
	if ev.Dated && !ev.Resent {
		both = min(both, ev.Quiet-ev.Step)
	}
	return max(peer, 0), max(min(both, peer), 0), news
}

func (s *Shard[C]) log(level slog.Level, text string, c *Conn[C], reason *reap.Error) {
	if log := s.Set.Logger; log.Enabled(context.Background(), level) {
		attrs := []any{"remote", NameOf(s.port.Remote(c)), "reason", reason.Reason,
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
