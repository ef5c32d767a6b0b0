package idle

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/testing/sim"

	"github.com/idlewheel/idlewheel/reap"
)

// A simHandler is the handler of a user: it makes every call that a user may make, at random.
type simHandler struct {
	gnet.BuiltinEventEngine
	w *simWorld
}

func (h *simHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	w, conn := h.w, c.(*simConn)
	life := conn.life
	conn.wasOpened = true
	life.Open()
	if w.Set.HandshakeTimeout > 0 && w.One(4) {
		handle(w.reaper, c).Ready()
		life.Ready()
	}
	h.setTimers(conn)
	action := h.mischief(conn)
	life.OpenedFrom = w.Now
	if w.greeting > 0 && conn.opened {
		return make([]byte, w.greeting), action
	}
	return nil, action
}

func (h *simHandler) OnTraffic(c gnet.Conn) gnet.Action {
	w, conn := h.w, c.(*simConn)
	life := conn.life
	if conn.current > 0 { // otherwise this is a Wake
		defer life.Returning()
	}
	w.Trace(life, "OnTraffic")
	n := conn.InboundBuffered()
	if w.leaves && w.One(3) {
		n = w.Rand.IntN(n + 1)
	}
	conn.take(n)
	conn.messages++
	if conn.messages == 2 && w.Set.HandshakeTimeout > 0 {
		handle(w.reaper, c).Ready()
		life.Ready()
	}
	if w.Reply > 0 && w.One(2) {
		_ = conn.write(1 + w.Rand.IntN(w.Reply))
	}
	if !conn.opened {
		return gnet.None
	}
	return h.mischief(conn)
}

func (h *simHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	w, conn := h.w, c.(*simConn)
	var reason *ReapError
	w.Trace(conn.life, "OnClose", err)
	conn.life.Check()
	switch isReaped := errors.As(err, &reason); {
	case isReaped:
		conn.life.Reap(reason)
	case errors.Is(err, io.EOF):
		w.N["ended by the peer"]++
	case err != nil:
		w.N["failed"]++
	}
	conn.life.Closed()
	if w.slow > 0 && w.One(64) {
		conn.el.Stall(w.UpTo(w.slow))
	}
	if reason == nil && w.One(8) {
		h.touchOther(conn)
	}
	return gnet.None
}

func (h *simHandler) onIdle(c gnet.Conn, ev Event) gnet.Action {
	w, conn := h.w, c.(*simConn)
	action := gnet.Close
	if ev.Reason == reap.WriteIdle && !w.Changes || conn.life.Keeps || w.One(4) {
		action = gnet.None
	}
	conn.life.Idle(ev, action == gnet.Close)
	switch {
	case w.One(8):
		_ = conn.write(w.Rand.IntN(100) + 1)
	case w.One(16):
		h.mischief(conn)
	}
	return action
}

func (h *simHandler) ping(c gnet.Conn) []byte {
	l := c.(*simConn).life
	l.Pinged(l.Judged, true)
	return []byte("ping")
}

func (h *simHandler) goodbye(c gnet.Conn, reason *ReapError) []byte {
	c.(*simConn).life.Goodbye(reason)
	return []byte("bye")
}

// mischief sometimes makes one of the calls that a handler may make.
func (h *simHandler) mischief(c *simConn) gnet.Action {
	w, life := h.w, c.life
	if w.slow > 0 && w.One(100) {
		w.Trace(life, "handler is slow")
		c.el.Stall(w.UpTo(w.slow))
	}
	if !w.busyHandler || !w.One(6) || !c.opened {
		return gnet.None
	}
	what := w.Rand.IntN(16)
	w.Trace(life, "mischief", what)
	switch what {
	case 0:
		w.Trace(life, "handler closes")
		return gnet.Close
	case 1:
		_ = c.Close()
	case 2:
		_ = c.el.Close(c)
	case 3:
		w.Trace(life, "closes another connection")
		_ = c.el.Close(h.other(c))
	case 4, 5:
		h.hold(c)
	case 6:
		h.exempt(c, !life.IsExempt())
	case 7, 8:
		h.setTimeouts(c)
	case 9:
		life.Touching()
		handle(w.reaper, c).Touch()
		life.Touched()
	case 10, 11:
		life.Message(true)
		handle(w.reaper, c).BeginMessage()
	case 12:
		life.Message(false)
		handle(w.reaper, c).EndMessage()
	case 13:
		_ = c.Wake(nil)
	case 14:
		w.Kick(h.other(c).life)
	case 15:
		h.touchOther(c)
	}
	return gnet.None
}

func (h *simHandler) other(c *simConn) *simConn {
	return c.el.order[h.w.Rand.IntN(len(c.el.order))]
}

// touchOther writes to another connection, which may fail and close it.
func (h *simHandler) touchOther(c *simConn) {
	if len(c.el.order) > 0 {
		_ = h.other(c).write(1 + h.w.Rand.IntN(50))
	}
}

// later makes a call for a connection in a task, if it is still open then.
func (h *simHandler) later(c *simConn, do func()) {
	h.w.After(h.w.UpTo(2*time.Second), func() {
		c.el.post(func() error {
			if c.opened {
				do()
			}
			return nil
		})
	})
}

// hold holds a connection, and releases it in a task.
func (h *simHandler) hold(c *simConn) {
	conn, ok := h.w.reaper.Conn(c)
	if !ok {
		return
	}
	conn.Hold()
	c.life.Held()
	h.later(c, func() {
		c.life.Touching()
		handle(h.w.reaper, c).Release()
		c.life.Released()
	})
}

func (h *simHandler) exempt(c *simConn, on bool) {
	c.life.Touching()
	handle(h.w.reaper, c).Exempt(on)
	c.life.Exempt(on)
	if on {
		h.later(c, func() {
			if c.life.IsExempt() {
				h.exempt(c, false)
			}
		})
	}
}

func (h *simHandler) setTimeouts(c *simConn) {
	w := h.w
	var t sim.Timeouts
	for k, d := range []time.Duration{w.Set.ReadTimeout, w.Set.WriteTimeout, w.Set.AllTimeout} {
		if d > 0 {
			t[k] = w.Limit()
		}
	}
	if err := handle(w.reaper, c).SetTimeouts(Timeouts{Read: t[0], Write: t[1], All: t[2]}); err == nil {
		c.life.SetTimeouts(t)
	}
}

// A simTimer is the knowledge of the oracle about one After or Every of a connection.
type simTimer struct {
	earliest time.Duration // of the next call
	latest   time.Duration // it is due then at the latest; a call for it may stand for earlier ones
	every    time.Duration
	vague    time.Duration // the call that set the timer took so long
	ended    bool          // it was called, or stopped
	stop     func() bool
}

// setTimers sets timers of a connection in a quarter of the worlds.
func (h *simHandler) setTimers(c *simConn) {
	w := h.w
	if w.Seed%4 != 0 || !w.One(2) {
		return
	}
	for range 1 + w.Rand.IntN(3) {
		t := &simTimer{}
		d := w.UpTo(w.Longest)
		call := func(gnet.Conn) { h.timer(c, t) }
		t.earliest = w.Now + d
		if conn := handle(w.reaper, c); w.One(2) {
			t.every = d
			t.stop = conn.Every(d, call)
		} else {
			t.stop = conn.After(d, call)
		}
		t.latest = w.Now + d
		t.vague = t.latest - t.earliest
		c.timers = append(c.timers, t)
	}
}

// timer is called by a timer.
func (h *simHandler) timer(c *simConn, t *simTimer) {
	w, life := h.w, c.life
	w.N["timer calls"]++
	w.Trace(life, "timer", t.earliest, t.every)
	switch {
	case !life.IsOpen:
		w.Violate(life, "no timer is called after OnClose", "a timer is called")
	case t.ended:
		w.Violate(life, "no timer is called after its end", "it is called again")
	case w.Now < t.earliest:
		w.Violate(life, fmt.Sprintf("no timer is called before %v", t.earliest), "it is called at %v", w.Now)
	}
	t.check(life)
	if t.every == 0 {
		t.ended = true
	} else {
		t.earliest += t.every
		t.latest += t.every * (1 + max(w.Now-t.latest+t.vague, 0)/t.every)
	}
	switch {
	case w.One(8):
		_ = c.Close()
	case w.One(8) && t.every > 0:
		h.stopTimer(life, t)
	case w.One(8) && len(c.timers) > 0:
		h.stopTimer(life, c.timers[w.Rand.IntN(len(c.timers))])
	case w.One(16) && w.slow > 0:
		w.Sleep(w.UpTo(w.slow))
	}
}

func (h *simHandler) stopTimer(l *sim.Life, t *simTimer) {
	if stopped := t.stop(); stopped == t.ended && l.IsOpen {
		h.w.Violate(l, fmt.Sprintf("stop returns %v", !t.ended), "it returns %v", stopped)
	}
	t.ended = true
}

// check reports a violation if the timer of an open connection is overdue.
func (t *simTimer) check(l *sim.Life) {
	if !t.ended {
		l.CheckDue("a timer is called", t.latest)
	}
}
