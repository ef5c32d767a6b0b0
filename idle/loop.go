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
	l := &loop{reaper: r, el: el, timeout: r.cfg.ReadTimeout, wheel: w}
	l.expire = l.judge
	l.setDue(never)
	return l
}

// add begins to watch a connection.
func (l *loop) add(c gnet.Conn) {
	clock := l.reaper.clock
	now := clock.now.Load()
	r := l.table.insert(c)
	if r.conn != 0 { // a conn that was never closed had this descriptor
		l.forget(r)
		r = l.table.insert(c)
	}
	id, s := l.states.take()
	*r = row{conn: identity(c), heard: uint32(now), ref: id}
	deadline := clock.before(now) + l.timeout
	*s = state{conn: c, timer: l.wheel.Schedule(deadline, id)}
	l.open++
	l.counters.Opened++
	l.setDue(min(l.due, l.wheelDue()))
	l.publish(now)
}

// remove stops watching the connection of a row, and returns why it was reaped, nil if it was closed otherwise.
func (l *loop) remove(r *row) (reason *ReapError) {
	if l.closing == l.states.at(r.id()) {
		reason = l.reason
		l.counters.reaped(reason)
	}
	l.forget(r)
	l.publish(l.reaper.clock.now.Load())
	return reason
}

func (l *loop) forget(r *row) {
	s := l.states.at(r.id())
	l.wheel.Cancel(s.timer)
	c, id := s.conn, r.id()
	l.table.remove(c, r)
	l.states.put(id)
	l.open--
	l.counters.Closed++
}

// touch records that the peer was heard. It is all that a heartbeat costs: the deadline in the wheel stays, and is moved
// when it comes up.
func (l *loop) touch(r *row) {
	now := l.reaper.clock.now.Load()
	r.heard = uint32(now)
	l.counters.Reads++
	if now != l.counted {
		l.publish(now)
	}
}

// leave records how many bytes the handler left in gnet's buffer.
func (l *loop) leave(r *row, bytes int) {
	r.ref &^= leftover
	if bytes != 0 {
		r.ref |= leftover
	}
	l.states.at(r.id()).leftover = uint32(bytes)
}

// run is the task: it judges what is due, for a bounded time.
func (l *loop) run(context.Context) error {
	l.stop = nil
	began := time.Now()
	more := true
	for more && l.stop == nil && time.Since(began) < taskTime {
		_, more = l.wheel.Advance(l.reaper.clock.read(), taskStep, l.expire)
	}
	l.publish(l.reaper.clock.now.Load())
	l.setDue(l.wheelDue())
	l.posted.Store(false) // from here on the driver may post the next
	if more {
		l.reaper.continueSoon()
	}
	return l.stop
}

// judge decides about a connection whose deadline in the wheel has come up.
func (l *loop) judge(timer wheel.Handle, id uint32) {
	clock := l.reaper.clock
	s := l.states.at(id)
	r := l.table.find(s.conn)
	if r == nil {
		panic("BUG: idle: a state without a row")
	}
	silence := l.silence(r, s)
	if l.stop != nil { // the engine is stopping: leave the rest to it
		l.wheel.Reschedule(timer, silence.deadline())
		return
	}
	if clock.read() < silence.deadline() {
		l.counters.Rescheduled++
		l.wheel.Reschedule(timer, silence.deadline())
		return
	}
	evidence := askKernel(s.conn.Fd())
	v := silence.judge(clock.elapsed(), evidence)
	if v.heard != 0 {
		l.counters.SavedByKernel++
		l.counters.Rescheduled++
		r.heard, s.noticed = uint32(clock.stamp(v.heard)), 0
	}
	l.wheel.Reschedule(timer, v.next)
	if v.idle {
		l.raise(r, s, v.event)
	}
}

// silence collects what is known of a connection.
func (l *loop) silence(r *row, s *state) silence {
	clock := l.reaper.clock
	now := clock.now.Load()
	heard := unwrap(r.heard, now)
	if now-heard > math.MaxInt32 { // keep it within reach of unwrap, however long it stays idle
		heard = now - math.MaxInt32
		r.heard = uint32(heard)
	}
	out := silence{timeout: l.timeout, heardAfter: clock.after(heard), heard: clock.before(heard)}
	if s.noticed != 0 {
		if noticed := unwrap(s.noticed-1, now); noticed > heard {
			out.heardAfter, out.heard, out.noticed = s.since, s.since, clock.before(noticed)
		}
	}
	return out
}

// raise lets the user's handler decide about an idle connection, or reaps it if there is no OnIdle.
func (l *loop) raise(r *row, s *state, ev Event) {
	l.counters.Events++
	s.noticed = uint32(l.reaper.clock.now.Load()) + 1
	if ev.First {
		s.since = l.reaper.clock.elapsed() - ev.Idle
	}
	if decide := l.reaper.decide; decide != nil {
		conn := r.conn
		action := decide(s.conn, ev)
		if action == gnet.Shutdown {
			l.stop = gneterrors.ErrEngineShutdown
		}
		if action != gnet.Close || r.conn != conn { // OnIdle may have closed it: a failing Write does
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
