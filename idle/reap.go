package idle

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// again is how soon a connection is judged again that is gone, and that gnet has not closed yet.
const again = time.Second

// judgeDue decides about a connection whose deadline in the wheel has come up.
func (l *loop) judgeDue(timer wheel.Handle, id uint32) {
	s := l.states.At(id)
	r, _ := l.table.Find(key(s.conn))
	if r == nil {
		panic("BUG: idle: a state without a record")
	}
	if l.stop != nil { // the engine is stopping: leave the rest to it
		l.wheel.Reschedule(timer, l.clock.Read()+l.clock.Tick())
		return
	}
	now := l.clock.Elapsed()
	l.keepInReach(r, s, now)
	f := l.facts(r, id, s, now)
	v := l.judge(s, &f, l.awayAt(now), now)
	if v.Act == verdict.Wait && !v.PutOff && (s.flags.has(exempt|observed) || !l.limitsOf(s).needsKernel(&f, now)) {
		l.rescheduled(v)
		l.wheel.Reschedule(timer, l.upcoming(v.Next))
		return
	}
	if next, open := l.decide(r, id, s, &f, v.Act != verdict.Wait); open {
		s.timer = l.wheel.Reschedule(s.timer, l.upcoming(next))
	}
}

// rescheduled counts a connection that stays.
func (l *loop) rescheduled(v verdict.Verdict) {
	l.counters.Rescheduled++
	if v.PutOff {
		l.counters.PutOff++
	}
}

// judge returns the verdict on a connection, which is to wait if none is wanted.
func (l *loop) judge(s *state, f *verdict.Facts, away *verdict.Away, now time.Duration) verdict.Verdict {
	lim := l.limitsOf(s)
	if s.flags.has(exempt|observed) || l.closings[s] != nil {
		return verdict.Verdict{Next: now + lim.Horizon}
	}
	return lim.Judge(f, away, now)
}

// decide asks the kernel about a connection, judges it again, and does what the verdicts say. It
// returns when to judge it again, and whether it is still open.
func (l *loop) decide(r *conntable.Record, id uint32, s *state, f *verdict.Facts, seemsDead bool) (next time.Duration, open bool) {
	c := s.conn
	ev := &l.evidence
	now := l.askKernel(c)
	for range reasons {
		if ev.Found == verdict.Ended { // it is over, whatever is known of it. Were gnet never to report it, this comes up again.
			return now + max(again, l.clock.Tick()), true
		}
		l.keepEvidence(r, s, f, ev, now, seemsDead)
		seemsDead = false
		lim := l.limitsOf(s)
		// What the kernel says was true when it was asked, and is not known to be true now.
		asked := now - ev.Took
		v := l.judge(s, f, l.awayAt(asked), asked)
		if v.Act == verdict.Wait {
			l.rescheduled(v)
			return v.Next, true
		}
		l.carryOut(s, lim, v, f, now)
		if !s.is(c) {
			return 0, false
		}
		if v.Act == verdict.End && !s.flags.has(observed) || l.stop != nil {
			break // it cannot be closed, or the engine is about to do so
		}
		r, _ = l.table.Find(key(c)) // handlers may have closed others, changed what is known of this one, and written to it
		now = l.askKernel(c)
		*f = l.facts(r, id, s, now)
	}
	return now + max(again, l.clock.Tick()), true
}

// askKernel asks the kernel about a connection, and returns the time after the question.
func (l *loop) askKernel(c gnet.Conn) (now time.Duration) {
	before := l.clock.Elapsed()
	l.reaper.kernel.ask(c.Fd(), &l.evidence)
	now = l.clock.Elapsed()
	l.evidence.Took = now - before
	return now
}

// carryOut does what a verdict says.
func (l *loop) carryOut(s *state, lim *limits, v verdict.Verdict, f *verdict.Facts, now time.Duration) {
	report := lim.Report(v, f, now)
	switch v.Act {
	case verdict.Raise:
		l.raise(s, Event{Reason(v.Reason), report.First, report.Limit, report.Lasted, report.Late}, now)
	case verdict.Ping:
		l.counters.Pings++
		l.missed(f)
		s.flags.setMissed(f.Missed + 1)
		s.instants[atPinged] = l.clock.Pack(now)
		l.write(s, l.set.cfg.Heartbeat.Ping(l.outer(s)))
	case verdict.Farewell:
		if l.set.cfg.ObserveOnly {
			l.end(s, reapError(v, report))
			return
		}
		s.flags.set(leaving, true)
		s.instants[atPinged] = l.clock.Pack(now)
		if !l.set.reset[v.Reason] {
			l.sayGoodbye(s, reapError(v, report))
		}
	case verdict.End:
		if v.Reason == verdict.HeartbeatTimeout {
			l.missed(f)
		}
		l.end(s, reapError(v, report))
	}
}

func reapError(v verdict.Verdict, p verdict.Report) *ReapError {
	return &ReapError{Reason: Reason(v.Reason), Limit: p.Limit, Lasted: p.Lasted, Late: p.Late, Bytes: p.Bytes, LimitBytes: p.Least}
}

// missed counts a heartbeat whose answer is not there when the next verdict is passed.
func (l *loop) missed(f *verdict.Facts) {
	if f.Missed > 0 {
		l.counters.Missed++
	}
}

// raise lets the user's handler decide about an idle connection, or ends it if there is no OnIdle.
func (l *loop) raise(s *state, ev Event, now time.Duration) {
	l.counters.events[ev.Reason]++
	s.instants[atNoticed+int(ev.Reason-ReadIdle)] = l.clock.Pack(now)
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
	if action == gnet.Close && s.is(c) { // OnIdle may have closed it: a failing Write does
		l.end(s, &ReapError{Reason: ev.Reason, Limit: ev.Timeout, Lasted: ev.Idle, Late: ev.Late})
	}
}

// end reaps a connection, unless it is only to be observed.
func (l *loop) end(s *state, reason *ReapError) {
	if !l.set.cfg.ObserveOnly {
		l.reap(s, reason)
		return
	}
	s.flags.set(observed, true)
	l.reaper.spared.Add(1)
	l.counters.observed[reason.Reason]++
	l.logReap(slog.LevelInfo, "would reap connection", s, reason)
}

// reap closes a connection. OnClose runs inside, with the reason.
func (l *loop) reap(s *state, reason *ReapError) {
	if l.closings[s] != nil {
		return
	}
	l.logReap(slog.LevelDebug, "reaping connection", s, reason)
	c := s.conn
	l.closing, l.reason = s, reason
	defer func() { l.closing, l.reason = nil, nil }()
	if l.set.reset[reason.Reason] {
		_ = c.SetLinger(0) // a reset is all that it changes
	} else if !s.flags.has(leaving) || reason.Reason != MaxAge { // otherwise it was told
		l.sayGoodbye(s, reason)
	}
	if !s.is(c) {
		return
	}
	err := l.close(c, s, reason)
	switch {
	case errors.Is(err, gneterrors.ErrEngineShutdown): // the user's OnClose asked for it
		l.stop = err
	case err != nil:
		l.reaper.warn(&l.reaper.warnings.closing, "closing a connection", "reason", reason.Reason, "error", err)
	}
}

func (l *loop) sayGoodbye(s *state, reason *ReapError) {
	if goodbye := l.set.cfg.Goodbye; goodbye != nil {
		c := s.conn
		if b := goodbye(l.outer(s), reason); s.is(c) {
			l.write(s, b)
		}
	}
}

// write sends bytes to a connection, through the layers around it.
func (l *loop) write(s *state, b []byte) {
	if len(b) > 0 && s.used() {
		_, _ = l.outer(s).Write(b) // an error means that it is closed, which OnClose has been told
	}
}

func (l *loop) log() *slog.Logger { return l.set.cfg.Logger }

// nameOf returns an address as text: as a value of the log, JSON would take it apart.
func nameOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	return addr.String()
}

func (l *loop) logReap(level slog.Level, msg string, s *state, reason *ReapError) {
	if log := l.log(); log.Enabled(context.Background(), level) {
		log.Log(context.Background(), level, msg, "remote", nameOf(l.remote(s)), "reason", reason.Reason,
			"lasted", reason.Lasted, "limit", reason.Limit, "late", reason.Late)
	}
}
