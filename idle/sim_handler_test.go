package idle

import (
	"errors"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/reap"
)

// A simHandler is the handler of a user: it makes every call that a user may make, at random.
type simHandler struct {
	gnet.BuiltinEventEngine
	w *simWorld
}

func (h *simHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	w, life := h.w, c.(*simConn).sock.life
	life.isOpen = true
	w.lives++
	w.open++
	if limit := w.cfg.MaxConnections; limit > 0 && w.open > limit {
		w.violate(life, "no more connections than MaxConnections", "MaxConnections is exceeded")
	}
	w.trace(life, "OnOpen")
	if w.cfg.HandshakeTimeout > 0 && w.one(4) {
		handle(w.reaper, c).Ready()
		life.ready()
	}
	h.setTimers(c)
	action := h.mischief(c)
	life.openedFrom = w.now
	if w.greeting > 0 && c.(*simConn).opened {
		return make([]byte, w.greeting), action
	}
	return nil, action
}

func (h *simHandler) OnTraffic(c gnet.Conn) gnet.Action {
	w, conn := h.w, c.(*simConn)
	life := conn.sock.life
	if conn.current > 0 { // otherwise this is a Wake
		defer life.returning()
	}
	w.trace(life, "OnTraffic")
	n := conn.InboundBuffered()
	if w.leaves && w.one(3) {
		n = w.rng.IntN(n + 1)
	}
	conn.take(n)
	life.messages++
	if life.messages == 2 && w.cfg.HandshakeTimeout > 0 && !w.locked {
		handle(w.reaper, c).Ready()
		life.ready()
	}
	if w.reply > 0 && w.one(2) {
		conn.writeOut(1 + w.rng.IntN(w.reply))
	}
	if !conn.opened {
		return gnet.None
	}
	return h.mischief(c)
}

func (h *simHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	life := c.(*simConn).sock.life
	life.closed(err)
	if h.w.slow > 0 && h.w.one(64) && !h.w.locked {
		life.el.stall(h.w.upTo(h.w.slow))
	}
	var reap *ReapError
	if !errors.As(err, &reap) && h.w.one(8) {
		h.touchOther(c.(*simConn))
	}
	return gnet.None
}

func (h *simHandler) onIdle(c gnet.Conn, ev Event) gnet.Action {
	w, life := h.w, c.(*simConn).sock.life
	action := gnet.Close
	if ev.Reason == reap.WriteIdle || life.keeps || w.one(4) {
		action = gnet.None
	}
	w.trace(life, "OnIdle", ev.Reason, ev.First, ev.Idle, ev.Late, action)
	life.idle(ev)
	switch {
	case w.one(8):
		c.(*simConn).writeOut(w.rng.IntN(100) + 1)
	case w.one(16):
		h.mischief(c)
	}
	if action == gnet.None && life.isOpen {
		life.spared(ev.Reason)
	}
	return action
}

// mischief sometimes makes one of the calls that a handler may make.
func (h *simHandler) mischief(c gnet.Conn) gnet.Action {
	w, conn := h.w, c.(*simConn)
	life := conn.sock.life
	if w.slow > 0 && w.one(100) && !w.locked {
		w.trace(life, "handler is slow")
		life.el.stall(w.upTo(w.slow))
	}
	if !w.busyHandler || w.locked || !w.one(6) || !conn.opened {
		return gnet.None
	}
	what := w.rng.IntN(16)
	w.trace(life, "mischief", what)
	switch what {
	case 0:
		w.trace(life, "handler closes")
		return gnet.Close
	case 1:
		_ = conn.Close()
	case 2:
		_ = conn.el.Close(c)
	case 3:
		h.closeOther(conn)
	case 4, 5:
		h.hold(conn)
	case 6:
		h.exempt(conn)
	case 7, 8:
		h.setTimeouts(conn)
	case 9:
		life.touching()
		handle(w.reaper, c).Touch()
		life.touched()
	case 10, 11:
		life.message(true)
		handle(w.reaper, c).BeginMessage()
	case 12:
		handle(w.reaper, c).EndMessage()
		life.message(false)
		life.message(w.cfg.MinRate.Always)
	case 13:
		_ = conn.Wake(nil)
	case 14:
		h.kick(conn)
	case 15:
		h.touchOther(conn)
	}
	return gnet.None
}

func (h *simHandler) other(c *simConn) *simConn {
	return c.el.order[h.w.rng.IntN(len(c.el.order))]
}

func (h *simHandler) closeOther(c *simConn) {
	h.w.trace(c.sock.life, "closes another connection")
	_ = c.el.Close(h.other(c))
}

// touchOther writes to another connection, which may fail and close it.
func (h *simHandler) touchOther(c *simConn) {
	if len(c.el.order) > 0 {
		h.other(c).writeOut(1 + h.w.rng.IntN(50))
	}
}

// hold holds a connection, and releases it in a task.
func (h *simHandler) hold(c *simConn) {
	conn, ok := h.w.reaper.Conn(c)
	if !ok {
		return
	}
	conn.Hold()
	c.sock.life.held()
	h.w.after(h.w.upTo(2*time.Second), func() {
		c.el.post(func() error {
			if c.opened {
				c.sock.life.touching()
				handle(h.w.reaper, c).Release()
				c.sock.life.released()
			}
			return nil
		})
	})
}

func (h *simHandler) exempt(c *simConn) {
	life := c.sock.life
	on := !life.isExempt
	life.touching()
	handle(h.w.reaper, c).Exempt(on)
	life.exempt(on)
	if on {
		h.w.after(h.w.upTo(2*time.Second), func() {
			c.el.post(func() error {
				if c.opened && life.isExempt {
					life.touching()
					handle(h.w.reaper, c).Exempt(false)
					life.exempt(false)
				}
				return nil
			})
		})
	}
}

func (h *simHandler) setTimeouts(c *simConn) {
	w := h.w
	var t Timeouts
	if w.cfg.ReadTimeout > 0 {
		t.Read = w.limit()
	}
	if w.cfg.AllTimeout > 0 {
		t.All = w.limit()
	}
	if w.cfg.WriteTimeout > 0 {
		t.Write = w.limit()
	}
	if err := handle(w.reaper, c).SetTimeouts(t); err == nil {
		c.sock.life.setTimeouts(t)
	}
}

// kick does the work of the task of Reaper.Kick. Kick itself would wait for the loop.
func (h *simHandler) kick(c *simConn) {
	w := h.w
	victim := h.other(c)
	c.el.post(func() error {
		if !victim.opened {
			return nil
		}
		conn, ok := w.reaper.Conn(victim)
		if !ok {
			return nil
		}
		l, s := conn.loop, conn.state()
		victim.sock.life.isKicked = true
		l.halt(nil)
		l.Kick(conn.id, uint32(s.Opened()))
		l.publish(l.clock.Stamp())
		return l.stop
	})
}
