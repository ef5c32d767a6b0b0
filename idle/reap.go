package idle

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/wheel"
)

// again is how soon a connection is looked at again that is gone, and that gnet has not closed yet.
const again = time.Second

// judgeDue decides about a connection whose deadline in the wheel has come up.
func (l *loop) judgeDue(timer wheel.Handle, id uint32) {
	s := l.states.at(id)
	r, _ := l.table.find(l.conn(s))
	if r == nil {
		panic("BUG: idle: a state without a row")
	}
	if l.stop != nil { // the engine is stopping: leave the rest to it
		l.wheel.Reschedule(timer, l.clock.read()+l.clock.tick)
		return
	}
	now := l.clock.read()
	f := l.life(r, id, s)
	v := l.judge(s, &f, now)
	if v.act == wait && !l.limitsOf(s).asks(&f, now) {
		l.counters.Rescheduled++
		l.wheel.Reschedule(timer, v.next)
		return
	}
	if next, open := l.decide(r, id, s, &f, v.act != wait); open {
		s.timer = l.wheel.Reschedule(s.timer, next)
	}
}

// judge returns the verdict on a connection, which is to wait if none is wanted.
func (l *loop) judge(s *state, f *life, now time.Duration) verdict {
	lim := l.limitsOf(s)
	if s.flags.has(exempt | observed) {
		return verdict{next: now + lim.horizon}
	}
	return lim.judge(f, now)
}

// decide asks the kernel about a connection, judges it again, and does what the verdicts say. It returns when to look at it
// again, and whether it is still open.
func (l *loop) decide(r *row, id uint32, s *state, f *life, seemsDead bool) (next time.Duration, open bool) {
	c := l.conn(s)
	now := l.clock.elapsed()
	ev := askKernel(c.Fd())
	if ev.found == ended { // it is over, whatever is known of it. Were gnet never to report it, this comes up again.
		return now + max(again, l.clock.tick), true
	}
	l.learn(r, s, f, &ev, now, seemsDead)
	for range kinds {
		lim := l.limitsOf(s)
		v := l.judge(s, f, now)
		if v.act == wait {
			l.counters.Rescheduled++
			return v.next, true
		}
		l.carryOut(s, lim, v, f, now)
		if !s.is(c) {
			return 0, false
		}
		if v.act == end && !s.flags.has(observed) || l.stop != nil {
			break // it cannot be closed, or the engine is about to do so
		}
		r, _ = l.table.find(c) // handlers may have closed others, changed what is known of this one, and written to it
		*f = l.life(r, id, s)
		ev = askKernel(c.Fd())
		l.learn(r, s, f, &ev, now, false)
	}
	return now + max(again, l.clock.tick), true
}

// asks reports whether the kernel has to be asked about a connection although none of its deadlines has passed.
func (lim *limits) asks(f *life, now time.Duration) bool {
	return lim.poll > 0 || f.rated != 0 && !f.counting && f.rated <= now
}

// learn takes into account what the kernel knows, and keeps it.
func (l *loop) learn(r *row, s *state, f *life, ev *evidence, now time.Duration, seemsDead bool) {
	lim := l.limitsOf(s)
	if lim.hear(f, ev, now) {
		if seemsDead {
			l.counters.SavedByKernel++
		}
		r.heard = uint32(l.clock.stamp(f.heard.to))
		s.instants[atBeat] = l.clock.packSome(f.beat)
	}
	s.flags.set(blind, !ev.counted)
	if lim.poll > 0 || lim.Write > 0 || lim.All > 0 || lim.interval > 0 || lim.drain != (drain{}) {
		if lim.look(f, ev, &s.moved, now) {
			s.instants[atWrote] = l.clock.pack(f.wrote.to)
		}
		s.instants[atStuck] = l.clock.packSome(f.stuck)
		s.instants[atOver] = l.clock.packSome(f.over)
	}
	s.flags.setMissed(f.missed)
	if f.rated != 0 {
		lim.count(f, ev, &s.received, now)
		s.instants[atRated] = l.clock.packSome(f.rated)
	}
}

// carryOut does what a verdict says.
func (l *loop) carryOut(s *state, lim *limits, v verdict, f *life, now time.Duration) {
	switch v.act {
	case raise:
		l.raise(s, lim.event(v, f, now), now)
	case ping:
		l.counters.Pings++
		l.missed(f)
		s.flags.setMissed(f.missed + 1)
		s.instants[atBeat] = l.clock.pack(now)
		c := l.conn(s)
		l.write(c, l.set.cfg.Heartbeat.Ping(c), s)
	case farewell:
		if l.set.cfg.ObserveOnly {
			l.end(s, lim.reason(v, f, now))
			return
		}
		s.flags.set(leaving, true)
		s.instants[atBeat] = l.clock.pack(now)
		if !l.set.reset[v.kind] {
			l.sayGoodbye(s, lim.reason(v, f, now))
		}
	case end:
		if v.kind == NoAnswer {
			l.missed(f)
		}
		l.end(s, lim.reason(v, f, now))
	}
}

// missed counts a heartbeat whose answer is not there when the next verdict is passed.
func (l *loop) missed(f *life) {
	if f.missed > 0 {
		l.counters.Missed++
	}
}

// raise lets the user's handler decide about an idle connection, or ends it if there is no OnIdle.
func (l *loop) raise(s *state, ev Event, now time.Duration) {
	l.counters.Events[ev.Kind]++
	s.instants[atNoticed+int(ev.Kind-ReadIdle)] = l.clock.pack(now)
	action := gnet.Close
	if ev.Kind == WriteIdle {
		action = gnet.None
	}
	c := l.conn(s)
	if ask := l.reaper.onIdle; ask != nil {
		action = ask(c, ev)
	}
	if action == gnet.Shutdown {
		l.stop = gneterrors.ErrEngineShutdown
	}
	if action == gnet.Close && s.is(c) { // OnIdle may have closed it: a failing Write does
		l.end(s, &ReapError{Kind: ev.Kind, Limit: ev.Timeout, Lasted: ev.Idle, Late: ev.Late})
	}
}

// end reaps a connection, unless it is only to be observed.
func (l *loop) end(s *state, reason *ReapError) {
	if !l.set.cfg.ObserveOnly {
		l.reap(s, reason)
		return
	}
	s.flags.set(observed, true)
	l.counters.Observed[reason.Kind]++
	l.logReap(slog.LevelInfo, "would reap connection", s, reason)
}

// reap closes a connection. OnClose runs inside, with the reason.
func (l *loop) reap(s *state, reason *ReapError) {
	l.logReap(slog.LevelDebug, "reaping connection", s, reason)
	c := l.conn(s)
	l.closing, l.reason = s, reason
	defer func() { l.closing, l.reason = nil, nil }()
	if l.set.reset[reason.Kind] {
		_ = c.SetLinger(0) // a reset is all that it changes
	} else if !s.flags.has(leaving) || reason.Kind != TooOld { // otherwise it was told
		l.sayGoodbye(s, reason)
	}
	if !s.is(c) {
		return
	}
	err := l.el.Close(c)
	switch {
	case errors.Is(err, gneterrors.ErrEngineShutdown): // the user's OnClose asked for it
		l.stop = err
	case err != nil:
		l.reaper.warn(&l.reaper.warnings.closing, "closing a connection", "reason", reason.Kind, "error", err)
	}
}

func (l *loop) sayGoodbye(s *state, reason *ReapError) {
	if goodbye := l.set.cfg.Goodbye; goodbye != nil {
		c := l.conn(s)
		l.write(c, goodbye(c, reason), s)
	}
}

// write sends bytes to a connection, unless whoever has made them has closed it.
func (l *loop) write(c gnet.Conn, b []byte, s *state) {
	if len(b) > 0 && s.is(c) {
		_, _ = c.Write(b) // an error means that it is closed, which OnClose has been told
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
		log.Log(context.Background(), level, msg, "remote", nameOf(l.conn(s).RemoteAddr()), "reason", reason.Kind,
			"lasted", reason.Lasted, "limit", reason.Limit, "late", reason.Late)
	}
}
