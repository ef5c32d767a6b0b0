package idlenet

import (
	"net"
	"net/http"

	"github.com/idlewheel/idlewheel/internal/conntable"
)

// Reason returns why a connection has ended, or nil if it has not. It is known until a minute after
// the connection was closed.
func (l *Listener) Reason(c net.Conn) (reason *ReapError) {
	l.with(c, func(s *shard, id uint32, _ *conn) {
		if e := s.Ends.Of(id); e != nil {
			reason = e.Reason
		}
	})
	return reason
}

// Hold says that the server works on a request: the connection is not idle, however silent it is,
// until Release was called as often as Hold. All other limits and heartbeats go on.
func (l *Listener) Hold(c net.Conn) { l.with(c, func(_ *shard, _ uint32, n *conn) { n.Hold() }) }

// Release takes one Hold back. After the last one the idle timeouts restart. More calls of Release
// than of Hold do nothing.
func (l *Listener) Release(c net.Conn) { l.with(c, func(s *shard, _ uint32, n *conn) { s.release(n) }) }

func (s *shard) release(n *conn) {
	if n.State.Release() {
		s.touch(n)
	}
}

// touch restarts the idle timeouts. The next look finds that.
func (s *shard) touch(n *conn) { n.State.Touch(&s.Watcher.Clock, &n.Front.record) }

// SetGroup says that a connection shares a part of the way to its peer with all connections of the
// same name: an upstream, a zone, a proxy. If all of them that were busy fall silent together,
// verdicts about their peers are held, as they are if all connections of the server do. Connections
// with the same address on either side, or from the same network, are grouped without it. An empty
// name takes the connection out of its group.
func (l *Listener) SetGroup(c net.Conn, name string) {
	l.with(c, func(s *shard, id uint32, _ *conn) { s.Groups.SetName(id, name) })
}

// Touch restarts the idle timeouts, as if bytes had passed in both directions.
func (l *Listener) Touch(c net.Conn) { l.with(c, func(s *shard, _ uint32, n *conn) { s.touch(n) }) }

// Ready ends the handshake: Config.HandshakeTimeout does not apply any more.
func (l *Listener) Ready(c net.Conn) { l.with(c, func(s *shard, _ uint32, n *conn) { s.ready(n) }) }

func (s *shard) ready(n *conn) {
	n.Front.record.Set(conntable.Ready, true)
	if knows := &s.listener.knowsReady; !knows.Load() {
		knows.Store(true)
	}
}

// SetLimits gives a connection limits of its own for the rest of its life: after a login, or for
// one long download. The idle timeouts count from the last activity, the maximum age and the
// handshake from the opening. Later calls of Update do not change them. A second call replaces all
// of the first one. The error says what is wrong with them, or is [ErrNotWatched].
func (l *Listener) SetLimits(c net.Conn, limits ConnLimits) error {
	err := l.watch.NotWatched()
	l.with(c, func(s *shard, id uint32, n *conn) { err = s.limit(id, n, limits) })
	return err
}

// limit gives a connection limits of its own, if the kernel can keep them for its socket.
func (s *shard) limit(id uint32, n *conn, own ConnLimits) error {
	if err := s.checkOwn(n, own); err != nil {
		return err
	}
	return s.SetLimits(id, n, own)
}

// BeginMessage says that a message of the peer begins to come in: Config.MinRate applies until
// EndMessage. It does nothing while a message is open.
func (l *Listener) BeginMessage(c net.Conn) {
	l.with(c, func(s *shard, _ uint32, n *conn) {
		if n.State.BeginMessage(&l.watch.Clock, s.LimitsOf(n).Rate) {
			s.Soon(n)
		}
	})
}

// EndMessage says that the message is complete. With MinRate.Always the next message begins.
func (l *Listener) EndMessage(c net.Conn) {
	l.with(c, func(s *shard, _ uint32, n *conn) { n.State.EndMessage(&l.watch.Clock, s.LimitsOf(n).Rate) })
}

// ConnState tells the Listener what a net/http server does with a connection:
//
//	server := &http.Server{Handler: handler, ConnState: ln.ConnState}
//
// A request that is being served holds its connection, and the first one ends the handshake. A
// connection that was hijacked, for WebSocket, is held no more and judged by its bytes. A closed
// connection is forgotten at once. With HTTP/2 a connection is held while it has streams. There is
// no heartbeat during a request: a ping would come between the bytes of the answer. A warning tells
// of connections that the Listener does not watch, such as those that a listener around it hides.
func (l *Listener) ConnState(c net.Conn, state http.ConnState) {
	if !l.serve(c, state, false) && state < http.StateHijacked {
		err := l.watch.NotWatched()
		if _, ok := l.root(c); !ok {
			err = errNoSocket(c)
		}
		l.watch.Warn(&l.warnings.hidden, "requests of a connection do not hold it", "error", err)
	}
}

// serve takes note of what a server does with a connection, and whether it is attached. It reports
// whether the Listener watches the connection. It waits while a GOAWAY is written.
func (l *Listener) serve(c net.Conn, state http.ConnState, isAttached bool) (watched bool) {
	var warned chan struct{}
	l.with(c, func(s *shard, id uint32, n *conn) {
		watched = true
		isActive, wasActive := state == http.StateActive, n.Serving()
		switch n.Serve(isActive); {
		case isActive && !wasActive:
			s.ready(n)
			n.Hold()
		case !isActive && wasActive:
			s.release(n)
		}
		switch {
		case state == http.StateHijacked:
			n.Own &^= attached
		case state == http.StateClosed && s.Ends.Of(id) == nil:
			s.drop(id, n)
		case isActive && isAttached:
			warned = s.attach(id, n, c)
		}
	})
	if warned != nil {
		<-warned
	}
	return watched
}
