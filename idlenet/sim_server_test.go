package idlenet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A simUse says by which calls a server tells the Listener of its work.
type simUse uint8

const (
	simUseNothing simUse = iota
	simUseHold
	simUseConnState
	simUseAttached
)

// simManners are the habits of the server for one connection. A Read that could return does so up
// to late after that, and a message needs up to work.
type simManners struct {
	use      simUse
	deaf     bool          // it closes no connection after the deadline, nor soon after a FIN
	again    bool          // it replaces a deadline that has passed, and reads on
	timeout  time.Duration // it sets such a deadline before each Read; 0 for none
	hijacks  bool
	messages bool // it tells of messages
	restful  bool // it calls Touch at times
}

func (w *simWorld) newManners() (m simManners) {
	if w.quiet {
		return m
	}
	m.use = simUse(w.Rand.IntN(4))
	m.deaf, m.again, m.hijacks, m.messages, m.restful = w.One(4), w.One(6), w.One(4), w.One(2), w.One(4)
	if w.One(5) {
		m.timeout = w.UpTo(2 * w.Longest)
	}
	return m
}

// A simConn is a connection of package net. Its address is used again when the Listener and the
// server have forgotten it.
type simConn struct{ *simLife }

// A simLife is a connection with the code of the server for it.
type simLife struct {
	*sim.Life
	simManners
	w        *simWorld
	conn     *simConn
	net.Conn          // for the methods that the Listener does not use
	c        net.Conn // the connection as the server has it, perhaps in a layer; nil before Accept

	deadline  time.Duration // of Read; 0 if there is none
	reading   bool          // a Read waits
	isServing bool          // not any more in the call that ends it
	woken     bool
	askedAt   time.Duration
	over      bool // the server has closed the connection
	finished  bool // it has forgotten the connection

	endedAt   time.Duration // OnReap was called
	endedFrom time.Duration // an instant before the end
	cuts      int           // by the Listener
	toldAt    time.Duration
	isTold    bool // and a request has not taken it back
	closedAt  time.Duration
	goneAt    time.Duration // the Listener has forgotten the connection; 0 if it has not
}

// calledFor checks that the Listener has not forgotten the connection.
func (l *simLife) calledFor(what string) {
	if l.goneAt != 0 {
		l.w.Violate(l.Life, "nothing is called for a connection that was dropped", "%s", what)
	}
}

// The methods below are those of package net. Only the Listener calls Close and SetReadDeadline.

func (l *simLife) Read(b []byte) (int, error) {
	switch s := l.Sock; {
	case s.Closed:
		return 0, net.ErrClosed
	case l.hasTimedOut():
		return 0, os.ErrDeadlineExceeded
	case s.Unread > 0:
		n := s.Read(len(b))
		if l.w.cfg.Stamp {
			l.Life.Read()
		}
		return n, nil
	case s.Rst:
		return 0, syscall.ECONNRESET
	case s.Fin:
		return 0, io.EOF
	}
	panic("BUG: the simulated server reads from an empty socket")
}

func (l *simLife) Close() error {
	w := l.w
	w.N["closed by the Listener"]++
	w.Trace(l.Life, "closed by the Listener")
	l.calledFor("Close is called")
	if l.c != nil { // otherwise it is refused
		l.Check()
		switch l.cuts++; {
		case l.Ended == nil || l.cuts > 1:
			w.Violate(l.Life, "the Listener closes a connection once, after its end", "closed")
		case l.isReset():
		case w.Now < l.endedFrom+w.cfg.CloseGrace+w.StoppedSince(cmp.Or(l.toldAt, l.endedAt)):
			w.Violate(l.Life, "the server gets CloseGrace", "closed, ended at %v", l.endedAt)
		}
		l.leaves()
	}
	l.Sock.Close()
	return nil
}

func (l *simLife) SetReadDeadline(t time.Time) error {
	w := l.w
	if w.Faulty && w.One(20) {
		l.serverCloses() // another goroutine was faster
	}
	w.N["told to close"]++
	w.Trace(l.Life, "SetReadDeadline")
	l.calledFor("SetReadDeadline is called")
	isIdle := l.Ended != nil && (verdict.IsIdle(l.Ended.Reason) || l.Ended.Reason == reap.Shed)
	byProtocol := l.use == simUseAttached && l.Ended != nil && slices.Contains([]Reason{reap.MaxAge, reap.Drained, reap.Kicked}, l.Ended.Reason)
	takesBack := t.IsZero() && l.isServing && (isIdle || byProtocol)
	if !takesBack && l.isServing && isIdle && l.use >= simUseConnState {
		w.Violate(l.Life, "a request that comes after the verdict is answered", "SetReadDeadline")
	}
	if l.isTold != takesBack || l.Ended == nil || l.isReset() || t.After(time.Unix(1, 0)) {
		w.Violate(l.Life, "one read deadline in the past is set after OnReap, unless the connection is reset or serves a request",
			"%v is set, reason %v", t, l.Ended)
	}
	if l.isTold = !takesBack; takesBack {
		w.N["requests after the end"]++
		l.deadline = 0
		return nil
	}
	// Bytes that have come since the question are not known.
	waits := l.Sock.Unread > 0 && !l.hijacks && w.Now-l.askedAt < time.Millisecond
	if byProtocol && (l.isServing || waits) {
		w.Violate(l.Life, "a request in hand goes on for CloseGrace", "SetReadDeadline, unread %d, reason %v", l.Sock.Unread, l.Ended)
	}
	if l.toldAt = cmp.Or(l.toldAt, w.Now); !l.Sock.Closed {
		l.deadline = w.Now
		l.Readable()
	}
	return nil
}

// A simRaw is what SyscallConn returns.
type simRaw struct {
	syscall.RawConn
	sock *sim.Sock
}

func (r simRaw) Control(do func(fd uintptr)) error {
	if r.sock.Closed {
		return net.ErrClosed
	}
	do(0)
	return nil
}

func (l *simLife) SyscallConn() (syscall.RawConn, error) { return simRaw{sock: l.Sock}, nil }
func (l *simLife) LocalAddr() net.Addr                   { return l.RemoteAddr() }
func (l *simLife) RemoteAddr() net.Addr                  { return []net.Addr{l.w.addr, sim.Addrs[1]}[l.Network] }

func (l *simLife) hasTimedOut() bool { return l.deadline != 0 && l.deadline <= l.w.Now }
func (l *simLife) readReturns() bool { return l.Sock.HasInput() || l.Sock.Closed || l.hasTimedOut() }

// The methods below are those of the server.

// A simLayer is a layer around a connection, such as TLS.
type simLayer struct{ net.Conn }

func (c simLayer) NetConn() net.Conn { return c.Conn }

func (l *simLife) accept() {
	w := l.w
	if w.ends {
		l.Sock.Close()
		return
	}
	l.Opening()
	if w.next = l.conn; w.wrap != nil {
		w.next = w.wrap(l.conn)
	}
	full := w.cfg.MaxConnections > 0 && w.ln.Connections() >= w.cfg.MaxConnections
	w.Admits = true
	c, err := w.ln.Accept()
	w.Admits = false
	if err != nil {
		w.Refused(l.Life, full && l.Sock.Closed)
		return
	}
	if l.c = c; w.One(4) {
		l.c = simLayer{c}
	}
	l.Open()
	l.Opened()
	l.state(http.StateNew)
	l.listen()
}

func (l *simLife) listen() {
	if l.over {
		return
	}
	l.reading = true
	if l.timeout > 0 {
		l.deadline = l.w.Now + l.timeout
		l.w.After(l.timeout, l.Readable)
	}
	l.Readable()
}

// Readable makes a Read that waits return, if it can.
func (l *simLife) Readable() {
	if !l.reading || l.woken || !l.readReturns() {
		return
	}
	l.woken = true
	l.w.Later(l.w.Now+l.w.UpTo(l.w.late), func() {
		l.woken = false
		if l.reading && !l.over && l.readReturns() {
			l.reading = false
			l.readReturned()
		}
	})
}

// All output is in the kernel, and a Write takes what fits.

func (l *simLife) Writable()             {}
func (l *simLife) OutboundBuffered() int { return 0 }
func (l *simLife) Handle() sim.Handle    { return l.w.ln.conn(l.c) }

func (l *simLife) readReturned() {
	n, err := l.c.Read(l.w.buffer[:])
	if l.checkReason(); n > 0 {
		l.serve()
		return
	}
	switch timedOut := errors.Is(err, os.ErrDeadlineExceeded); {
	case !timedOut && l.deaf && l.w.Set.HalfClosedTimeout > 0: // it still sends
		l.w.Later(l.w.Now+l.w.UpTo(2*l.w.Longest), l.serverCloses)
	case !timedOut:
		l.serverCloses()
	case l.again:
		l.listen()
	case !l.deaf:
		l.w.Later(l.w.Now+l.w.UpTo(l.w.work), l.serverCloses)
	}
}

func (l *simLife) serve() {
	w := l.w
	l.Check()
	if l.use == simUseHold {
		l.Hold()
	}
	l.state(http.StateActive)
	if w.One(2) {
		l.Ready()
	}
	if l.restful && w.One(4) {
		l.Touch()
	}
	if l.messages {
		l.Message(true)
	}
	w.Later(w.Now+w.UpTo(w.work), l.served)
}

func (l *simLife) served() {
	w := l.w
	if l.over {
		return
	}
	if l.use == simUseHold {
		l.Release()
	}
	l.state(map[bool]http.ConnState{false: http.StateIdle, true: http.StateHijacked}[l.hijacks])
	if l.messages && w.One(2) {
		l.Message(false)
	}
	if !l.Sock.Closed {
		l.Sock.Write(w.Reply)
	}
	if l.use >= simUseConnState && l.hijacks {
		l.use = simUseNothing
	}
	if !w.quiet && w.One(50) {
		l.serverCloses()
		return
	}
	l.listen()
}

// state calls ConnState, of the server or of the Reaper.
func (l *simLife) state(state http.ConnState) {
	tell := [...]func(net.Conn, http.ConnState){simUseConnState: l.w.ln.ConnState, simUseAttached: l.w.http.ConnState}[l.use]
	if l.isServing = state == http.StateActive; tell != nil {
		l.Serving(l.isServing, state >= http.StateHijacked, func() { tell(l.c, state) })
	}
}

// serverCloses closes the connection on the side of the server. It calls no method of the Listener,
// so it may be called while the Listener holds its locks.
func (l *simLife) serverCloses() {
	if l.over {
		return
	}
	w := l.w
	l.Check()
	l.over, l.reading = true, false
	w.Trace(l.Life, "closed by the server")
	l.Sock.Close()
	l.leaves()
	w.Later(w.Now+w.UpTo(w.late), func() {
		l.checkReason()
		if l.state(http.StateClosed); l.use >= simUseConnState {
			if l.isWatched() && w.ln.Reason(l.c) == nil && l.goneAt == 0 {
				w.Violate(l.Life, "a connection is dropped when ConnState reports that it is closed", "it is kept")
			}
		}
		l.finished = true
	})
}

func (w *simWorld) ping(c net.Conn) {
	l := w.lifeOf(c)
	isPrompt := w.Kind == sim.Calm // otherwise a stop after the verdict may delay the call
	l.Pinged(w.calledAt, isPrompt && !l.LosesInput())
	l.Sock.Write(4)
}

func (w *simWorld) goodbye(c net.Conn, reason *ReapError) { w.lifeOf(c).Goodbye(reason) }

func (w *simWorld) onIdle(c net.Conn, ev Event) Action {
	l := w.lifeOf(c)
	l.calledFor("OnIdle is called")
	l.Idle(ev, !l.Keeps)
	w.maybeSlow()
	if l.Keeps {
		return Keep
	}
	return Close
}

func (w *simWorld) onReap(c net.Conn, e *ReapError) {
	l := w.lifeOf(c)
	w.Trace(l.Life, "OnReap", e)
	l.calledFor("OnReap is called")
	switch {
	case l.Ended != nil:
		w.Violate(l.Life, "OnReap is called once", "%v after %v", e, l.Ended)
	case w.ln.Reason(l.c) != e:
		w.Violate(l.Life, "Reason returns the error that OnReap gets", "%v, not %v", w.ln.Reason(l.c), e)
	}
	l.Reap(e)
	if l.endedAt, l.endedFrom = w.Now, l.Judged; e.Reason == reap.Kicked {
		l.endedFrom = l.KickedAt
	}
	w.maybeSlow()
}

// maybeSlow makes a callback slow.
func (w *simWorld) maybeSlow() {
	if w.slowCalls && w.Faulty && w.One(20) {
		w.Slow(w.UpTo(w.Longest / 4))
	}
}

// The methods below check what a Listener promises besides verdicts.

// Decided reports whether the connection has ended. The caller may hold the mutex of its shard.
func (l *simLife) Decided() bool {
	s := l.w.ln.shard(l.conn)
	id, ok := s.ids.Find(address(l.conn))
	return ok && s.Ends.Of(id) != nil
}

// isWatched reports whether the Listener knows the connection, or keeps its reason.
func (l *simLife) isWatched() (is bool) {
	l.w.ln.with(l.conn, func(*shard, uint32, *conn) { is = true })
	return is || l.w.ln.Reason(l.conn) != nil
}

// CheckOwn checks that a kick and the end of a connection are carried out in time.
func (l *simLife) CheckOwn() {
	w := l.w
	switch {
	case l.Ended == nil && l.KickedAt != 0:
		l.CheckDue("OnReap is called after Kick", l.KickedAt)
	case l.Ended == nil:
	case l.isReset():
		l.CheckDue("a reset connection is closed", l.endedAt)
	default:
		l.CheckDue("an ended connection is closed", l.endedAt+w.cfg.CloseGrace+w.outagesSince(l.endedAt))
	}
}

// leaves records that the connection is closed.
func (l *simLife) leaves() {
	if l.closedAt == 0 {
		l.Closed()
		l.closedAt = l.w.Now
		l.w.closed = append(l.w.closed, l)
	}
}

// forgotten reports whether a closed connection is forgotten. That may be neither early nor late.
func (l *simLife) forgotten() bool {
	w := l.w
	if l.isWatched() {
		if l.Ended == nil && w.judging && w.Now > l.closedAt+1<<11*w.Set.Tick {
			if found := w.foundBy(l.closedAt); w.Now > found {
				w.Violate(l.Life, fmt.Sprintf("a closed connection is dropped by %v", found), "it is kept at %v", w.Now)
			}
		}
		return false
	}
	if kept := l.closedAt + time.Minute; l.Ended != nil && w.Now < kept {
		w.Violate(l.Life, fmt.Sprintf("the reason is kept until %v", kept), "it is dropped")
	}
	w.Trace(l.Life, "forgotten")
	l.goneAt = w.Now
	w.dropped = append(w.dropped, l)
	return true
}

// checkReason checks that Reason returns what OnReap got.
func (l *simLife) checkReason() {
	if l.goneAt != 0 || l.c == nil || l.Ended == nil {
		return
	}
	if got := l.w.ln.Reason(l.c); got != l.Ended {
		l.w.Violate(l.Life, "Reason returns the error that OnReap got", "%v, not %v", got, l.Ended)
	}
}

func (l *simLife) isReset() bool { return slices.Contains(l.w.cfg.Reset, l.Ended.Reason) }
