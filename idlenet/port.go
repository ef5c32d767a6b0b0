package idlenet

import (
	"net"
	"net/netip"
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// This file has what package watch needs of a shard. The caller holds its mutex, so calls of
// functions of the Config are collected, and made after it is unlocked.

var (
	_ watch.Port[front]   = (*shard)(nil)
	_ watch.Finder[front] = (*shard)(nil)
)

func (s *shard) Record(n *conn) *conntable.Record { return s.lastRead(n) }

func (s *shard) Ask(n *conn, ev *verdict.Evidence) (open bool) {
	return s.reaper.ask(n.Front.own(), s.fresh(n), ev)
}

func (s *shard) Output(*conn) int { return 0 }

func (s *shard) Remote(n *conn) net.Addr { return n.Front.own().RemoteAddr() }

// Path returns the addresses of the socket, also if a PROXY header has told others.
func (s *shard) Path(n *conn) (local, remote netip.Addr) {
	own := n.Front.own()
	return sourcelimit.AddrOf(own.LocalAddr()), sourcelimit.AddrOf(own.RemoteAddr())
}

func (s *shard) Heard(n *conn, _ mono.Time) mono.Time {
	now, open := s.reaper.driver.askWhenHeard(n)
	if last := s.reaper.driver.evidence.LastByte(now); open && last != 0 {
		return last
	}
	return s.Watcher.Clock.Before(s.lastRead(n).Heard.Unwrap(s.Watcher.Clock.Stamp()), now)
}

func (s *shard) Learned(_ *conn, heard bool, ev *verdict.Evidence, now mono.Time) {
	if heard {
		s.reaper.driver.news++
	}
	s.reaper.driver.noteHeard(ev, now)
}

func (s *shard) Raise(id uint32, n *conn, ev Event, reason *ReapError) (end bool) {
	handle, c, onIdle := s.handle(id, n), n.Front.conn(), s.config().OnIdle
	s.calls = append(s.calls, func() {
		judged := false // it is watched, and has not ended
		handle.with(func(s *shard, id uint32, n *conn) {
			if judged = s.IsJudged(id, n); judged {
				s.Counters.Events[ev.Reason]++
			}
		})
		if judged && onIdle(c, ev) == Close { // its engine may have used the object again
			handle.with(func(s *shard, id uint32, n *conn) { s.End(id, n, reason) })
		}
	})
	return false
}

func (s *shard) Ping(id uint32, n *conn) (sent bool) {
	if n.Own&pinging != 0 {
		return false
	}
	n.Own |= pinging
	handle, ping, c, nth := s.handle(id, n), s.config().Heartbeat.Ping, n.Front.conn(), n.Pings()
	s.calls = append(s.calls, func() {
		s.reaper.spawn(func() { // a stop may delay it
			handle.with(func(s *shard, _ uint32, n *conn) { n.SendPing(&s.Watcher.Clock, nth) })
			ping(c)
			handle.with(func(_ *shard, _ uint32, n *conn) { n.Own &^= pinging })
		})
	})
	return true
}

func (s *shard) Farewell(n *conn, reason *ReapError) {
	if goodbye, c := s.config().Goodbye, n.Front.conn(); goodbye != nil {
		s.calls = append(s.calls, func() { s.reaper.spawn(func() { goodbye(c, reason) }) })
	}
}

// Close makes the server close a connection.
func (s *shard) Close(id uint32, n *conn, reason *ReapError) {
	cfg, c, own := s.config(), n.Front.conn(), n.Front.own()
	e := s.Ends.Add(id, n.Is(connstate.Observed), reason)
	s.CountReap(id, n, reason)
	if reason.Reason == reap.NoHandshake {
		s.warnUnready(n, reason.Limit)
	}
	reset := s.Set.Resets(reason.Reason)
	if !reset && s.endsByProtocol(id, n, reason.Reason) {
		s.startLeaving(n)
	}
	s.calls = append(s.calls, func() {
		if cfg.OnReap != nil { // first, so that the server finds what it has noted
			cfg.OnReap(c, reason)
		}
		if reset {
			s.close(id, own, e, true)
		} else {
			s.told(id, own, e, false)
		}
	})
}

// close closes a connection that has ended. It has a goroutine of its own because Close waits for
// calls on the descriptor, and some of them block: a Read after File().Fd(), a RawConn.Control.
func (s *shard) close(id uint32, own socket, e *watch.End, reset bool) {
	s.reaper.spawn(func() {
		isOpen := false // otherwise its engine may have used the object again
		if s.locked(func() { isOpen = s.Ends.Of(id) == e }); isOpen {
			closeNow(own, reset)
			s.told(id, own, e, true)
		}
	})
}

// warnUnready warns of a HandshakeTimeout that seems to end each connection: one that was heard in
// the second half of it, as scanners are not.
func (s *shard) warnUnready(n *conn, limit time.Duration) {
	r, now := s.reaper, s.Watcher.Clock.Elapsed()
	if talked := n.LastHeard(&s.Watcher.Clock, s.lastRead(n), now).To; !r.knowsReady.Load() && now.Sub(talked) < limit/2 {
		r.watch.Warn(&r.warnings.unready, "HandshakeTimeout ends connections, and the server has called neither Ready nor AttachHTTP: "+
			"it ends each connection then, also one that has exchanged messages: call Conn.Ready after the login, or unset HandshakeTimeout", "remote", watch.NameOf(n.Front.own().RemoteAddr()))
	}
}

// LookAtEnded closes a connection that the server should have closed by now.
func (s *shard) LookAtEnded(id uint32, n *conn, e *watch.End, now mono.Time) (next mono.Time, keep bool) {
	own := n.Front.own()
	switch {
	case isClosed(own):
		s.reasons.add(n, e.Reason, now)
		return 0, false
	case e.Told == 0: // it is just being told, or closed
		return now.Add(quiet), true
	}
	closeAt := e.CloseAt.Add(s.Outages.At(now).Server.Within(e.Told, now)) // outages left it no time
	switch {
	case now >= closeAt:
		e.Told = 0
		s.calls = append(s.calls, func() { s.close(id, own, e, false) })
		return now.Add(quiet), true
	case n.Own&leaving != 0:
		return min(s.leave(id, n, now), closeAt), true
	}
	soon := now.Add(max(now.Sub(e.Told), s.Watcher.Clock.Tick())) // most servers close it at once
	return min(soon, closeAt), true
}

// forget takes note that the server has closed a connection.
func (s *shard) forget(id uint32, n *conn) {
	if e := s.Ends.Of(id); e != nil {
		s.reasons.add(n, e.Reason, s.Watcher.Clock.Elapsed())
	}
	s.Drop(id, n)
}

func (s *shard) SetKeepAlive(n *conn, d time.Duration) { s.reaper.keepAlive(n.Front.own(), d) }

// CountBusy does nothing: the driver counts.
func (s *shard) CountBusy(*outage.Count) {}
