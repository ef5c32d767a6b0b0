package idle

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// closeRetry is the time after which a connection is judged again if gnet has not closed it yet.
const closeRetry = time.Second

// judgeDue judges a connection when its deadline in the wheel has passed.
func (l *loop) judgeDue(timer wheel.Handle, id uint32) {
	s := l.states.At(id)
	r, _ := l.table.Find(key(s.conn))
	if r == nil {
		panic("BUG: idle: a state without a record")
	}
	if l.stop != nil { // the engine is stopping and closes all connections
		l.wheel.Reschedule(timer, time.Duration(l.clock.Read().Add(l.clock.Tick())))
		return
	}
	now := l.clock.Elapsed()
	s.KeepInReach(l.clock, r, now)
	f := l.facts(r, id, s, now)
	v := l.judge(s, &f, l.outagesAt(now), now)
	needsKernel := s.Judged() && l.limitsOf(s).needsKernel(&f, now)
	if v.Act == verdict.Wait && !v.PutOff && !needsKernel {
		l.countRescheduled(v)
		l.wheel.Reschedule(timer, l.upcoming(v.Next))
		return
	}
	if next, open := l.decide(r, id, s, &f, v.Act != verdict.Wait); open {
		l.wheel.Reschedule(s.timer, l.upcoming(next))
	}
}

// countRescheduled counts a connection that stays open.
func (l *loop) countRescheduled(v verdict.Verdict) {
	l.counters.Rescheduled++
	if v.PutOff {
		l.counters.PutOff++
	}
}

// judge returns the verdict on a connection. It waits if the connection is not to be judged.
func (l *loop) judge(s *state, f *verdict.Facts, away *verdict.Away, now mono.Time) verdict.Verdict {
	lim := l.limitsOf(s)
	if !s.Judged() || l.pendingCloses[s] != nil {
		return verdict.Verdict{Next: now.Add(lim.Horizon)}
	}
	return lim.Judge(f, away, now)
}

// decide asks the kernel about a connection, judges it again, and carries out the verdicts. It
// returns the time of the next judgement, and whether the connection is still open.
func (l *loop) decide(
	r *conntable.Record, id uint32, s *state, f *verdict.Facts, seemsDead bool,
) (next mono.Time, open bool) {
	c := s.conn
	ev := &l.evidence
	now := l.askKernel(c)
	for range reasons {
		if ev.Found == verdict.Ended { // gnet will report it; if it never does, this is repeated
			return now.Add(max(closeRetry, l.clock.Tick())), true
		}
		l.learn(r, s, f, ev, now, seemsDead)
		seemsDead = false
		lim := l.limitsOf(s)
		// The kernel's answer was true before the question ended, and may be old by now.
		asked := now.Add(-ev.Took)
		v := l.judge(s, f, l.outagesAt(asked), asked)
		if v.Act == verdict.Wait {
			l.countRescheduled(v)
			return v.Next, true
		}
		l.carryOut(s, lim, v, f, now)
		if !s.is(c) {
			return 0, false
		}
		if v.Act == verdict.End && !s.Observed() || l.stop != nil {
			break // gnet could not close it, or the engine stops
		}
		// Handlers may have closed other connections, so that records moved, and may have written.
		r, _ = l.table.Find(key(c))
		now = l.askKernel(c)
		*f = l.facts(r, id, s, now)
	}
	return now.Add(max(closeRetry, l.clock.Tick())), true
}

// askKernel queries the kernel about a connection. It returns the time after the query.
func (l *loop) askKernel(c gnet.Conn) (now mono.Time) {
	before := l.clock.Elapsed()
	l.reaper.kernel.ask(c.Fd(), &l.evidence)
	now = l.clock.Elapsed()
	l.evidence.Took = now.Sub(before)
	return now
}

// carryOut carries out a verdict.
func (l *loop) carryOut(s *state, lim *limits, v verdict.Verdict, f *verdict.Facts, now mono.Time) {
	report := lim.Report(v, f, now)
	switch v.Act {
	case verdict.Raise:
		l.raise(s, Event{
			Reason: v.Reason, First: report.First, Timeout: report.Limit, Idle: report.Lasted, Late: report.Late,
		}, now)
	case verdict.Ping:
		l.counters.Pings++
		l.countMissed(f)
		s.Ping(l.clock, f, now)
		l.write(s, l.set.cfg.Heartbeat.Ping(l.outer(s)))
	case verdict.Farewell:
		if l.set.cfg.ObserveOnly {
			l.end(s, reapError(v, report))
			return
		}
		s.Leave(l.clock, now)
		if !l.set.reset[v.Reason] {
			reason := reapError(v, report)
			reason.Grace = l.set.cfg.MaxAgeGrace
			l.sayGoodbye(s, reason)
		}
	case verdict.End:
		if v.Reason == verdict.HeartbeatTimeout {
			l.countMissed(f)
		}
		l.end(s, reapError(v, report))
	}
}

func reapError(v verdict.Verdict, p verdict.Report) *ReapError {
	return &ReapError{
		Reason: v.Reason, Limit: p.Limit, Lasted: p.Lasted, Late: p.Late, Bytes: p.Bytes, LimitBytes: p.Least,
	}
}

// countMissed counts the last ping if it was not answered before the next verdict.
func (l *loop) countMissed(f *verdict.Facts) {
	if f.Missed > 0 {
		l.counters.Missed++
	}
}

// raise calls OnIdle for an idle connection. Without OnIdle it reaps the connection, unless that is
// write idle.
func (l *loop) raise(s *state, ev Event, now mono.Time) {
	l.counters.Events[ev.Reason]++
	s.Notice(l.clock, ev.Reason, now)
	action := gnet.Close
	if ev.Reason == WriteIdle {
		action = gnet.None
	}
	c := s.conn
	if onIdle := l.set.cfg.OnIdle; onIdle != nil {
		action = onIdle(l.outer(s), ev)
	}
	if action == gnet.Shutdown {
		l.stop = gneterrors.ErrEngineShutdown
	}
	if action == gnet.Close && s.is(c) { // OnIdle may have closed it: a failing Write does that
		l.end(s, &ReapError{Reason: ev.Reason, Limit: ev.Timeout, Lasted: ev.Idle, Late: ev.Late})
	}
}

// end reaps a connection. With ObserveOnly it only counts and logs it.
func (l *loop) end(s *state, reason *ReapError) {
	if !l.set.cfg.ObserveOnly {
		l.reap(s, reason)
		return
	}
	s.SetObserved(true)
	l.reaper.decided.Add(1)
	l.counters.Observed[reason.Reason]++
	l.logReap(slog.LevelInfo, "would reap connection", s, reason)
}

// reap closes a connection. gnet calls OnClose meanwhile, which gets the reason.
func (l *loop) reap(s *state, reason *ReapError) {
	if l.pendingCloses[s] != nil {
		return
	}
	c := s.conn
	l.beforeClose(s, reason)
	defer func() { l.reaping, l.reapReason = nil, nil }()
	if !s.is(c) {
		return
	}
	err := l.close(c, s, reason)
	switch {
	case errors.Is(err, gneterrors.ErrEngineShutdown): // the user's OnClose asked for it
		l.stop = err
	case err != nil:
		l.reaper.warn(&l.reaper.warnings.closing, "closing a connection",
			"reason", reason.Reason, "error", err)
	}
}

// beforeClose does what comes before gnet closes a connection. The peer gets its goodbye, which may
// fail and close the connection, or is to be reset. OnClose gets the reason.
func (l *loop) beforeClose(s *state, reason *ReapError) {
	l.logReap(slog.LevelDebug, "reaping connection", s, reason)
	if spread := l.set.cfg.ReconnectSpread; spread > 0 && reason.Reason == Drained {
		reason.Reconnect = rand.N(spread)
	}
	l.reaping, l.reapReason = s, reason
	if l.set.reset[reason.Reason] {
		_ = s.conn.SetLinger(0) // without it the close sends FIN
	} else if !s.Leaving() || reason.Reason != MaxAge { // otherwise it got its goodbye
		l.sayGoodbye(s, reason)
	}
}

// endOnReturn is end for the connection of which a call of the handler has just returned. gnet
// closes the connection by the returned Action. So a layer around the handler does not find it
// closed in the middle of a call.
func (l *loop) endOnReturn(s *state, reason *ReapError) gnet.Action {
	if l.set.cfg.ObserveOnly {
		l.end(s, reason)
		return gnet.None
	}
	l.beforeClose(s, reason)
	return gnet.Close
}

func (l *loop) sayGoodbye(s *state, reason *ReapError) {
	if goodbye := l.set.cfg.Goodbye; goodbye != nil {
		c := s.conn
		if b := goodbye(l.outer(s), reason); s.is(c) {
			l.write(s, b)
		}
	}
}

// write sends bytes to a connection through the layers around it.
func (l *loop) write(s *state, b []byte) {
	if len(b) > 0 && s.used() {
		_, _ = l.outer(s).Write(b) // after an error gnet has closed the connection
	}
}

func (l *loop) log() *slog.Logger { return l.set.cfg.Logger }

// nameOf returns an address as text. A JSON log would show the fields of the value.
func nameOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

func (l *loop) logReap(level slog.Level, msg string, s *state, reason *ReapError) {
	if log := l.log(); log.Enabled(context.Background(), level) {
		attrs := []any{"remote", nameOf(l.remote(s)), "reason", reason.Reason,
			"lasted", reason.Lasted, "limit", reason.Limit, "late", reason.Late}
		if reason.LimitBytes > 0 {
			attrs = append(attrs, "bytes", reason.Bytes, "bytes-limit", reason.LimitBytes)
		}
		log.Log(context.Background(), level, msg, attrs...)
	}
}
