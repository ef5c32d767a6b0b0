package idlenet

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

const (
	// reasonKept is how long the reason of a closed connection is kept.
	reasonKept = time.Minute
	// verdictsPerLook is the number of verdicts that a look carries out: an event of each idle reason,
	// a ping, a goodbye and an end.
	verdictsPerLook = 6
	// looksPerLock is the number of connections that are looked at under one lock.
	looksPerLock = 16
)

// advance looks at connections that are due, and makes the calls that follow. It returns their
// number, and reports whether there may be more connections.
func (s *shard) advance() (made int, more bool) {
	s.mu.Lock()
	_, more = s.wheel.Advance(time.Duration(s.listener.clock.Read()), looksPerLock, s.lookDue)
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
	return len(calls), more || len(calls) > 0 // a call may have left more of them
}

// lookDue looks at a connection when its deadline in the wheel has passed.
func (s *shard) lookDue(timer wheel.Handle, id uint32) {
	n := s.conns.At(id)
	if next, open := s.look(id, n); open {
		s.wheel.Reschedule(timer, time.Duration(next))
	} else {
		s.drop(id, n)
	}
}

// look asks the kernel about a connection and carries out the verdict. It returns the time of the
// next look, and false if the connection is to be dropped.
func (s *shard) look(id uint32, n *conn) (next mono.Time, open bool) {
	l := s.listener
	before := l.clock.Elapsed()
	n.KeepInReach(&l.clock, &n.record, before)
	set, ev := l.settings.Load(), &s.evidence
	open = l.ask(n.conn, n.fresh(set), ev)
	now := l.clock.Elapsed()
	if e := s.ends[id]; e != nil {
		return s.lookAtEnd(id, n, e, open, now)
	}
	if !open {
		return 0, false
	}
	ev.Took = now.Sub(before)
	if ev.Found == verdict.Ended { // the server will read that; until then the limits apply
		ev.Found = verdict.Nothing
	}
	f := n.facts(l, &set.limits, id, now)
	f = s.learn(id, n, &set.limits, f, now)
	asked := now.Add(-ev.Took) // the answer may be old by now
	if !n.Judged() {
		return now.Add(set.limits.Horizon), true
	}
	away := l.judge.away(&set.rule, asked)
	for range verdictsPerLook {
		if s.ends[id] != nil || !n.Judged() {
			break
		}
		v := set.limits.Judge(&f, away, asked)
		if v.Act == verdict.Wait {
			s.counters.Rescheduled++
			if v.PutOff {
				s.counters.PutOff++
			}
			return s.nextLook(n, set, v, now), true
		}
		s.carryOut(id, n, set, v, &f, now)
	}
	return now.Add(l.clock.Tick()), true
}

// fresh returns an age of the last byte below which it does not matter whether it is unread. Unread
// bytes save a connection if they are old. They may also complete a handshake or a message.
func (n *conn) fresh(set *settings) time.Duration {
	if set.cfg.MinRate.BytesPerSecond > 0 || set.cfg.HandshakeTimeout > 0 && !n.record.Has(conntable.Ready) {
		return 0
	}
	return set.fresh
}

// learn updates the facts with the kernel's answer, and keeps them. A byte that came within a step
// of the kernel's clock after the last known one has no date of its own, so it counts at its latest
// possible instant.
func (s *shard) learn(id uint32, n *conn, lim *verdict.Limits, f verdict.Facts, now mono.Time) verdict.Facts {
	l := s.listener
	ev := &s.evidence
	if n.Learn(&l.clock, &n.record, lim, &f, ev, now) {
		l.judge.news++
	}
	if latest := now.Add(ev.Step - ev.Silent); ev.Dated && ev.Received > 0 && latest > f.Heard.To {
		f.Heard.To = latest
		n.record.Heard = l.clock.StampAt(latest).Short()
	}
	s.noteHeard(ev, now)
	return f
}

// nextLook returns the time of the next look at a connection that stays. A held connection is
// looked at as often as others, so that a Release need not move its deadline forward.
func (s *shard) nextLook(n *conn, set *settings, v verdict.Verdict, now mono.Time) mono.Time {
	next := v.Next
	if n.Held() {
		for _, timeout := range [...]time.Duration{set.cfg.ReadTimeout, set.cfg.WriteTimeout, set.cfg.AllTimeout} {
			if timeout > 0 {
				next = min(next, now.Add(timeout))
			}
		}
	}
	if interval := set.cfg.Heartbeat.Interval; interval > 0 { // an answer brings the next one forward
		next = min(next, now.Add(interval))
	}
	return max(next, now+1)
}

// lookAtEnd looks at a connection that has ended: the server should have closed it by now.
func (s *shard) lookAtEnd(id uint32, n *conn, e *end, open bool, now mono.Time) (next mono.Time, keep bool) {
	switch {
	case !open && e.closed:
		return 0, false
	case !open:
		s.noteClosed(id, n)
		return now.Add(reasonKept), true
	case now >= e.closeAt:
		away := s.listener.judge.away(&s.listener.settings.Load().rule, now)
		// The server had no time to close it during outages.
		if ran := e.closeAt.Add(away.Server.Within(e.told, now)); now < ran {
			return ran, true
		}
		if own, ok := root(n.conn); ok {
			s.calls = append(s.calls, func() { closeNow(own, false) })
		}
		return now.Add(s.listener.clock.Tick()), true
	}
	return e.closeAt, true
}

// carryOut carries out a verdict. It updates the facts, unless the connection ends.
func (s *shard) carryOut(id uint32, n *conn, set *settings, v verdict.Verdict, f *verdict.Facts, now mono.Time) {
	report := set.limits.Report(v, f, now)
	c := n.conn
	rounded := s.listener.clock.Unpack(s.listener.clock.Pack(now), now) // as the state keeps it
	switch v.Act {
	case verdict.Raise:
		s.raise(id, n, set, Event{
			Reason: v.Reason, First: report.First, Timeout: report.Limit, Idle: report.Lasted, Late: report.Late,
		}, now)
		f.Noticed[v.Reason-ReadIdle] = rounded
	case verdict.Ping:
		s.counters.Pings++
		s.countMissed(f)
		n.Ping(&s.listener.clock, f, now)
		f.Missed, f.LastPing = f.Missed+1, rounded
		ping := set.cfg.Heartbeat.Ping
		s.calls = append(s.calls, func() { s.listener.spawn(func() { ping(c) }) })
	case verdict.Farewell:
		if set.cfg.ObserveOnly {
			s.end(id, n, reapError(v.Reason, report))
			return
		}
		n.Leave(&s.listener.clock, now)
		f.Leaving, f.LastPing = true, rounded
		reason := reapError(v.Reason, report)
		reason.Grace = set.cfg.MaxAgeGrace
		if goodbye := set.cfg.Goodbye; goodbye != nil {
			s.calls = append(s.calls, func() { s.listener.spawn(func() { goodbye(c, reason) }) })
		}
	case verdict.End:
		if v.Reason == HeartbeatTimeout {
			s.countMissed(f)
		}
		s.end(id, n, reapError(v.Reason, report))
	}
}

func reapError(r Reason, p verdict.Report) *ReapError {
	return &ReapError{Reason: r, Limit: p.Limit, Lasted: p.Lasted, Late: p.Late, Bytes: p.Bytes, LimitBytes: p.Least}
}

// countMissed counts the last ping if it was not answered before the next verdict.
func (s *shard) countMissed(f *verdict.Facts) {
	if f.Missed > 0 {
		s.counters.Missed++
	}
}

// raise calls OnIdle for an idle connection, after the shard is unlocked. Without OnIdle the
// connection ends, unless it is write idle.
func (s *shard) raise(id uint32, n *conn, set *settings, ev Event, now mono.Time) {
	s.counters.Events[ev.Reason]++
	n.Notice(&s.listener.clock, ev.Reason, now)
	reason := &ReapError{Reason: ev.Reason, Limit: ev.Timeout, Lasted: ev.Idle, Late: ev.Late}
	onIdle := set.cfg.OnIdle
	if onIdle == nil {
		if ev.Reason != WriteIdle {
			s.end(id, n, reason)
		}
		return
	}
	c := n.conn
	s.calls = append(s.calls, func() {
		if l := s.listener; l.isJudged(c) && onIdle(c, ev) == Close {
			l.with(c, func(s *shard, id uint32, n *conn) { s.end(id, n, reason) })
		}
	})
}

// isJudged reports whether a connection is watched and has not ended. The call before may have
// ended it.
func (l *Listener) isJudged(c net.Conn) (judged bool) {
	l.with(c, func(s *shard, id uint32, n *conn) { judged = s.ends[id] == nil && n.Judged() })
	return judged
}

// end makes the server close a connection. With ObserveOnly it only counts and logs it. The calls
// that follow are made by the judge.
func (s *shard) end(id uint32, n *conn, reason *ReapError) {
	l := s.listener
	set := l.settings.Load()
	if s.ends[id] != nil {
		return
	}
	if set.cfg.ObserveOnly {
		n.SetObserved(true)
		s.counters.Observed[reason.Reason]++
		logEnd(set, slog.LevelInfo, "would end connection", n.conn, reason)
		return
	}
	own, _ := root(n.conn)
	now := l.clock.Elapsed()
	e := &end{reason: reason, closeAt: verdict.Never}
	s.ends[id] = e
	l.ending.Add(1)
	s.counters.CountReap(reason)
	s.addClosed(id, n, reason, set.cfg.KeepClosed, now)
	logEnd(set, slog.LevelDebug, "ending connection", n.conn, reason)
	c, reset, onReap := n.conn, set.reset[reason.Reason], set.cfg.OnReap
	s.calls = append(s.calls, func() {
		if onReap != nil { // first, so that the server finds what it has noted
			onReap(c, reason)
		}
		if reset {
			closeNow(own, true)
		} else {
			tell(own)
		}
		s.told(id, e, set.cfg.CloseGrace)
	})
}

// told begins the grace in which the server is to close a connection.
func (s *shard) told(id uint32, e *end, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends[id] == e && !e.closed {
		e.told = s.listener.clock.Elapsed()
		e.closeAt = e.told.Add(grace)
		s.soon(s.conns.At(id))
	}
}

func logEnd(set *settings, level slog.Level, msg string, c net.Conn, reason *ReapError) {
	if log := set.cfg.Logger; log.Enabled(context.Background(), level) {
		log.Log(context.Background(), level, msg, "remote", nameOf(c.RemoteAddr()), "reason", reason.Reason,
			"lasted", reason.Lasted, "limit", reason.Limit, "late", reason.Late)
	}
}

// nameOf returns an address as text. A JSON log would show the fields of the value.
func nameOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}
