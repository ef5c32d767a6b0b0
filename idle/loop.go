package idle

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"

	"github.com/idlewheel/idlewheel/wheel"
)

const (
	// taskTime bounds one task on a loop, so that the living are served in between: a close costs about 10 µs.
	taskTime = time.Millisecond
	// taskStep is how many entries are taken from the wheel between two looks at the clock.
	taskStep = 32
)

// never is the due time of a loop whose wheel is empty.
const never = time.Duration(math.MaxInt64)

// A loop is what the Reaper keeps for one event loop of gnet. Except where otherwise noted, all of it is owned by the
// loop goroutine.
type loop struct {
	// Immutable.
	reaper  *Reaper
	clock   *clock
	el      gnet.EventLoop
	timeout time.Duration
	expire  func(wheel.Handle, uint32) // judge, bound once

	wheel  *wheel.Wheel[uint32] // ids of states
	table  table
	states states
	open   int // connections
	due    time.Duration

	counters counters
	counted  int64  // the stamp at which the counters were last published
	closing  *state // the connection that is being reaped, and why
	reason   *ReapError
	stop     error // gnet's request to shut down, which the task must return

	// Atomic.
	dueAt     atomic.Int64 // copy of due for the driver
	posted    atomic.Bool  // a task is on its way
	published published

	// Guarded by Reaper.mu.
	live bool // it has connections, so gnet runs it and tasks may be posted
}

func newLoop(r *Reaper, el gnet.EventLoop) *loop {
	w, err := wheel.New[uint32](r.cfg.Tick, r.cfg.slots())
	if err != nil {
		panic("BUG: " + err.Error()) // Config was checked
	}
	l := &loop{reaper: r, clock: &r.clock, el: el, timeout: r.cfg.ReadTimeout, wheel: w}
	l.expire = l.judge
	l.setDue(never)
	return l
}

// add begins to watch a connection.
func (l *loop) add(c gnet.Conn) {
	if l.open == maxWatched {
		l.reaper.cfg.Logger.Warn("too many connections of one event loop: one more is not watched", "limit", maxWatched)
		return
	}
	now := l.clock.now.Load()
	id, s := l.states.take()
	*s = state{conn: c, timer: l.wheel.Schedule(l.clock.before(now)+l.timeout, id)}
	if old, replaced := l.table.insert(c, id, uint32(now)); replaced {
		l.forget(old)
	}
	l.open++
	l.counters.Opened++
	l.setDue(min(l.due, l.wheelDue()))
	l.publish(now)
}

// remove stops watching a connection, and returns why it was reaped, nil if it was closed otherwise.
func (l *loop) remove(id uint32) (reason *ReapError) {
	s := l.states.at(id)
	if l.closing == s {
		reason = l.reason
		l.counters.reaped(reason)
	}
	l.table.remove(s.conn)
	l.forget(id)
	l.publish(l.clock.now.Load())
	return reason
}

// forget drops the state of a connection whose row is gone.
func (l *loop) forget(id uint32) {
	l.wheel.Cancel(l.states.at(id).timer)
	l.states.put(id)
	l.open--
	l.counters.Closed++
}

// countLastRead counts a message whose handler has closed the connection.
func (l *loop) countLastRead(heard bool) {
	if heard {
		l.counters.Reads++
		l.publish(l.clock.now.Load())
	}
}

// leave records how many bytes the handler left in gnet's buffer.
func (l *loop) leave(c gnet.Conn, bytes int) {
	r, id := l.table.find(c)
	r.mark &^= leftover
	if bytes != 0 {
		r.mark |= leftover
	}
	l.states.at(id).leftover = uint32(bytes)
}

// wasLeft returns how many bytes the handler left in gnet's buffer.
func (l *loop) wasLeft(c gnet.Conn) uint32 {
	_, id := l.table.find(c)
	return l.states.at(id).leftover
}

// run is the task: it judges what is due, for a bounded time.
func (l *loop) run(context.Context) error {
	l.stop = nil
	began := time.Now()
	more := true
	for more && l.stop == nil && time.Since(began) < taskTime {
		_, more = l.wheel.Advance(l.clock.read(), taskStep, l.expire)
	}
	l.publish(l.clock.now.Load())
	l.setDue(l.wheelDue())
	l.posted.Store(false) // from here on the driver may post the next
	if more {
		l.reaper.continueSoon()
	}
	return l.stop
}

// judge decides about a connection whose deadline in the wheel has come up.
func (l *loop) judge(timer wheel.Handle, id uint32) {
	s := l.states.at(id)
	r, _ := l.table.find(s.conn)
	if r == nil {
		panic("BUG: idle: a state without a row")
	}
	known := l.silence(r, s)
	if l.stop != nil { // the engine is stopping: leave the rest to it
		l.wheel.Reschedule(timer, known.deadline())
		return
	}
	if l.clock.read() < known.deadline() {
		l.counters.Rescheduled++
		l.wheel.Reschedule(timer, known.deadline())
		return
	}
	v := known.judge(l.clock.elapsed(), askKernel(s.conn.Fd()))
	if v.heard != 0 {
		l.counters.SavedByKernel++
		l.counters.Rescheduled++
		r.heard, s.noticed = uint32(l.clock.stamp(v.heard)), 0
	}
	l.wheel.Reschedule(timer, v.next)
	if v.idle {
		l.raise(s, v.event)
	}
}

// silence collects what is known of a connection.
func (l *loop) silence(r *row, s *state) silence {
	now := l.clock.now.Load()
	heard := unwrap(r.heard, now)
	if now-heard > math.MaxInt32 { // keep it within reach of unwrap, however long it stays idle
		heard = now - math.MaxInt32
		r.heard = uint32(heard)
	}
	known := silence{timeout: l.timeout, heardAfter: l.clock.after(heard), heard: l.clock.before(heard)}
	if s.noticed != 0 {
		if noticed := unwrap(s.noticed-1, now); noticed > heard {
			known.heardAfter, known.heard, known.noticed = s.since, s.since, l.clock.before(noticed)
		} else {
			s.noticed = 0 // heard again; an old stamp would come round to look new
		}
	}
	return known
}

// raise lets the user's handler decide about an idle connection, or reaps it if there is no OnIdle.
func (l *loop) raise(s *state, ev Event) {
	l.counters.Events++
	if s.noticed = uint32(l.clock.now.Load()) + 1; s.noticed == 0 {
		s.noticed = math.MaxUint32 // one tick early once in 2^32, for 0 is none
	}
	if ev.First {
		s.since = l.clock.elapsed() - ev.Idle
	}
	if decide := l.reaper.decide; decide != nil {
		c := s.conn
		action := decide(c, ev)
		if action == gnet.Shutdown {
			l.stop = gneterrors.ErrEngineShutdown
		}
		if action != gnet.Close || s.conn != c { // OnIdle may have closed it: a failing Write does
			return
		}
	}
	l.reap(s, ev)
}

// reap closes an idle connection. OnClose runs inside, with the reason.
func (l *loop) reap(s *state, ev Event) {
	reason := &ReapError{Kind: ev.Kind, Limit: ev.Timeout, Idle: ev.Idle, Late: ev.Late}
	log := l.reaper.cfg.Logger
	if log.Enabled(context.Background(), slog.LevelDebug) {
		log.Debug("reaping connection", "remote", s.conn.RemoteAddr(), "reason", ev.Kind, "idle", ev.Idle, "late", ev.Late)
	}
	l.closing, l.reason = s, reason
	err := l.el.Close(s.conn)
	l.closing, l.reason = nil, nil
	switch {
	case errors.Is(err, gneterrors.ErrEngineShutdown): // the user's OnClose asked for it
		l.stop = err
	case err != nil:
		log.Warn("closing an idle connection", "error", err)
	}
}

// wheelDue returns when the wheel needs a task next.
func (l *loop) wheelDue() time.Duration {
	due, ok := l.wheel.NextDue()
	if !ok {
		return never
	}
	return due
}

func (l *loop) setDue(due time.Duration) {
	l.due = due
	l.dueAt.Store(int64(due))
}
