package idlenet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"
)

// simManners are the habits of a server.
type simManners struct {
	late  time.Duration // up to this time passes until a Read that could return does
	work  time.Duration // up to this time is needed for a message
	reply int           // bytes
}

// A simUse says by which calls a server tells the Listener of its work.
type simUse uint8

const (
	simUseNothing simUse = iota
	simUseHold
	simUseConnState
)

// A simServer is the code of the server for one connection.
type simServer struct {
	use      simUse
	deaf     bool          // it does not close the connection when the deadline has passed
	again    bool          // it replaces a deadline that has passed, and reads on
	deadline time.Duration // it sets such a deadline before each Read; 0 for none
	hijacks  bool
	messages bool // it tells of messages
	reading  bool // a Read waits
	woken    bool
	over     bool // the server has closed the connection
	finished bool // it has forgotten the connection
	restful  bool // it calls Touch at times
}

// A simLayer is a layer around a connection, such as TLS.
type simLayer struct{ net.Conn }

func (c simLayer) NetConn() net.Conn { return c.Conn }

// accept accepts the connection.
func (l *simLife) accept() {
	w := l.w
	if w.ends {
		l.sock.shut()
		return
	}
	l.openedFrom = w.now
	w.inner.next = l.conn
	full := w.cfg.MaxConnections > 0 && w.ln.Connections() >= w.cfg.MaxConnections
	c, err := w.ln.Accept()
	if err != nil {
		w.refused++
		w.trace(l, "refused")
		if !l.sock.closed || !full && w.drain.at == 0 {
			w.violate(l, "a connection is refused only for lack of room, or in a drain", err.Error())
		}
		return
	}
	if l.c = c; w.one(4) {
		l.c = simLayer{c}
	}
	l.opened()
	if l.use == simUseConnState {
		w.ln.ConnState(l.c, http.StateNew)
	}
	l.listen()
}

// listen waits in Read.
func (l *simLife) listen() {
	if l.over {
		return
	}
	l.reading = true
	if l.deadline > 0 {
		l.sock.setDeadline(l.w.now + l.deadline)
		l.w.after(l.deadline, l.wake)
	}
	l.wake()
}

// wake makes a Read that waits return, if it can.
func (l *simLife) wake() {
	if !l.reading || l.woken || !l.sock.readReturns() {
		return
	}
	l.woken = true
	l.w.later(l.w.now+l.w.upTo(l.w.server.late), func() {
		l.woken = false
		if l.reading && !l.over && l.sock.readReturns() {
			l.reading = false
			l.readReturned()
		}
	})
}

func (l *simLife) readReturned() {
	n, err := l.c.Read(make([]byte, 1<<12))
	switch {
	case n > 0:
		l.serve()
	case !errors.Is(err, os.ErrDeadlineExceeded):
		l.serverCloses()
	default:
		l.checkReason()
		switch {
		case l.again:
			l.listen()
		case !l.deaf:
			l.w.later(l.w.now+l.w.upTo(l.w.server.work), l.serverCloses)
		}
	}
}

// serve works on a message.
func (l *simLife) serve() {
	w := l.w
	switch l.use {
	case simUseHold:
		l.check()
		w.ln.Hold(l.c)
		l.now.holds++
	case simUseConnState:
		l.check()
		w.ln.ConnState(l.c, http.StateActive)
		l.now.holds, l.now.ready = 1, true
	}
	if !l.now.ready && w.one(2) {
		l.check()
		w.ln.Ready(l.c)
		l.now.ready = true
	}
	if l.restful && w.one(4) {
		l.restarts(func() { w.ln.Touch(l.c) })
	}
	if l.messages {
		w.ln.BeginMessage(l.c)
		if l.now.message == 0 {
			l.now.message = w.now
		}
	}
	w.later(w.now+w.upTo(w.server.work), l.served)
}

func (l *simLife) served() {
	w := l.w
	if l.over {
		return
	}
	switch l.use {
	case simUseHold:
		l.restarts(func() { w.ln.Release(l.c) })
		l.now.holds--
	case simUseConnState:
		next := http.StateIdle
		if l.hijacks {
			next = http.StateHijacked
		}
		l.restarts(func() { w.ln.ConnState(l.c, next) })
		l.now.holds = 0
	}
	if l.messages && w.one(2) {
		w.ln.EndMessage(l.c)
		if l.now.message = 0; w.cfg.MinRate.Always {
			l.now.message = w.now
		}
	}
	if !l.sock.closed {
		l.sock.write(w.server.reply)
	}
	if l.use == simUseConnState && l.hijacks {
		l.use = simUseNothing
	}
	if !w.quiet && w.one(50) {
		l.serverCloses()
		return
	}
	l.listen()
}

// serverCloses closes the connection on the side of the server. It calls no method of the Listener,
// so it may be called while the Listener holds its locks.
func (l *simLife) serverCloses() {
	if l.over {
		return
	}
	w := l.w
	l.check()
	l.over, l.reading = true, false
	if !l.sock.closed {
		w.trace(l, "closed by the server")
		l.sock.shut()
	}
	l.leaves()
	w.later(w.now+w.upTo(w.server.late), func() {
		l.checkReason()
		if l.use == simUseConnState {
			w.ln.ConnState(l.c, http.StateClosed)
			if w.ln.watches(l.conn) && w.ln.Reason(l.c) == nil && !l.gone {
				w.violate(l, "a connection is dropped when ConnState reports that it is closed", "it is kept")
			}
		}
		l.finished = true
	})
}

// kick calls Kick for a connection.
func (w *simWorld) kick() {
	if len(w.all) == 0 {
		return
	}
	l := w.all[w.rng.IntN(len(w.all))]
	if l.openedAt == 0 || l.gone {
		return
	}
	id := w.ln.ID(l.c)
	w.later(w.now+w.upTo(w.longest), func() {
		if l.gone {
			return
		}
		ended, open := w.ln.Reason(l.c) != nil, l.isOpen()
		if l.kickedAt == 0 {
			l.kickedAt = w.now
		}
		err := w.ln.Kick(context.Background(), id)
		if err == nil && !w.cfg.ObserveOnly {
			l.kicked = w.now
		}
		switch {
		case ended && err == nil:
			w.violate(l, "an ended connection is not kicked", "Kick returns no error")
		case open && !ended && (err != nil || w.ln.Reason(l.c) == nil && !w.cfg.ObserveOnly):
			w.violate(l, "Kick ends an open connection", "it does not")
		}
	})
}

// onReap is Config.OnReap.
func (w *simWorld) onReap(c net.Conn, reason *ReapError) { w.lifeOf(c).reaped(reason) }

// maybeSlow makes a callback of the Config slow.
func (w *simWorld) maybeSlow() {
	if !w.slowCalls || !w.one(20) || !w.faulty {
		return
	}
	from := w.now
	if w.inRound && w.slowSince == 0 {
		w.slowSince = from
	}
	w.sleep(w.upTo(w.longest / 4))
	if w.inRound {
		w.away.add(from, w.now)
		if w.slowSince == from {
			w.slowSince = 0
		}
	}
}
