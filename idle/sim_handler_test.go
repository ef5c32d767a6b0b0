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

// The methods below are the handler of a user: it makes every call that a user may make, at random.

func (w *simWorld) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	conn := c.(*simConn)
	life := conn.life
	conn.wasOpened = true
	life.Open()
	if w.Set.HandshakeTimeout > 0 && w.One(4) {
		handle(w.reaper, c).Ready()
		life.Ready()
	}
	w.setTimers(conn)
	action := w.mischief(conn)
	life.OpenedFrom = w.Now
	if w.greeting > 0 && conn.opened {
		return make([]byte, w.greeting), action
	}
	return nil, action
}

func (w *simWorld) OnTraffic(c gnet.Conn) gnet.Action {
	conn := c.(*simConn)
	life := conn.life
	if conn.current > 0 { // otherwise this is a Wake
		defer life.Returning()
	}
	w.Trace(life, "OnTraffic")
	n := conn.InboundBuffered()
	if w.leaves && w.One(3) {
		n = w.Rand.IntN(n + 1)
	}
	fromInbound := min(n, conn.inbound)
	conn.inbound -= fromInbound
	conn.current -= n - fromInbound
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
	return w.mischief(conn)
}

func (w *simWorld) OnClose(c gnet.Conn, err error) gnet.Action {
	conn := c.(*simConn)
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
		w.touchOther(conn)
	}
	return gnet.None
}

func (w *simWorld) onIdle(c gnet.Conn, ev Event) gnet.Action {
	conn := c.(*simConn)
	action := gnet.Close
	if ev.Reason == reap.WriteIdle && !w.Changes || conn.life.Keeps || w.One(4) {
		action = gnet.None
	}
	conn.life.Idle(ev, action == gnet.Close)
	switch {
	case w.One(8):
		_ = conn.write(w.Rand.IntN(100) + 1)
	case w.One(16):
		w.mischief(conn)
	}
	return action
}

func (w *simWorld) ping(c gnet.Conn) []byte {
	l := c.(*simConn).life
	l.Pinged(l.Judged, true)
	return []byte("ping")
}

func (w *simWorld) goodbye(c gnet.Conn, reason *ReapError) []byte {
	c.(*simConn).life.Goodbye(reason)
	return []byte("bye")
}

// mischief sometimes makes one of the calls that a handler may make.
func (w *simWorld) mischief(c *simConn) gnet.Action {
	life := c.life
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
		return gnet.Close
	case 1:
		_ = c.Close()
	case 2:
		_ = c.el.Close(c)
	case 3:
		_ = c.el.Close(w.other(c))
	case 4, 5:
		w.hold(c)
	case 6:
		w.exempt(c, !life.IsExempt())
	case 7, 8:
		w.setTimeouts(c)
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
		w.Kick(w.other(c).life)
	case 15:
		w.touchOther(c)
	}
	return gnet.None
}

func (w *simWorld) other(c *simConn) *simConn {
	return c.el.order[w.Rand.IntN(len(c.el.order))]
}

// touchOther writes to another connection, which may fail and close it.
func (w *simWorld) touchOther(c *simConn) {
	if len(c.el.order) > 0 {
		_ = w.other(c).write(1 + w.Rand.IntN(50))
	}
}

// later makes a call for a connection in a task, if it is still open then.
func (w *simWorld) later(c *simConn, do func()) {
	w.After(w.UpTo(2*time.Second), func() {
		c.el.post(func() error {
			if c.opened {
				do()
			}
			return nil
		})
	})
}

func (w *simWorld) hold(c *simConn) {
	handle(w.reaper, c).Hold()
	c.life.Held()
	w.later(c, func() {
		c.life.Touching()
		handle(w.reaper, c).Release()
		c.life.Released()
	})
}

func (w *simWorld) exempt(c *simConn, on bool) {
	c.life.Touching()
	handle(w.reaper, c).Exempt(on)
	c.life.Exempt(on)
	if on {
		w.later(c, func() {
			if c.life.IsExempt() {
				w.exempt(c, false)
			}
		})
	}
}

func (w *simWorld) setTimeouts(c *simConn) {
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
func (w *simWorld) setTimers(c *simConn) {
	if w.Seed%4 != 0 || !w.One(2) {
		return
	}
	for range 1 + w.Rand.IntN(3) {
		d := w.UpTo(w.Longest)
		t := &simTimer{earliest: w.Now + d}
		set := handle(w.reaper, c).After
		if w.One(2) {
			t.every, set = d, handle(w.reaper, c).Every
		}
		t.stop = set(d, func(gnet.Conn) { w.timer(c, t) })
		t.latest = w.Now + d
		t.vague = t.latest - t.earliest
		c.timers = append(c.timers, t)
	}
}

func (w *simWorld) timer(c *simConn, t *simTimer) {
	life := c.life
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
	life.CheckDue("a timer is called", t.latest)
	if t.ended = t.every == 0; !t.ended {
		t.earliest += t.every
		t.latest += t.every * (1 + max(w.Now-t.latest+t.vague, 0)/t.every)
	}
	switch {
	case w.One(8):
		_ = c.Close()
	case w.One(8) && t.every > 0:
		w.stopTimer(life, t)
	case w.One(8) && len(c.timers) > 0:
		w.stopTimer(life, c.timers[w.Rand.IntN(len(c.timers))])
	case w.One(16) && w.slow > 0:
		w.Sleep(w.UpTo(w.slow))
	}
}

func (w *simWorld) stopTimer(l *sim.Life, t *simTimer) {
	if stopped := t.stop(); stopped == t.ended && l.IsOpen {
		w.Violate(l, fmt.Sprintf("stop returns %v", !t.ended), "it returns %v", stopped)
	}
	t.ended = true
}
