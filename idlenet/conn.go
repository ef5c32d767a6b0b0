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
		if e := s.ends[id]; e != nil {
			reason = e.reason
		}
	})
	return reason
}

// Hold says that the server works on a request: the connection is not idle, however silent it is,
// until Release was called as often as Hold. All other limits and heartbeats go on.
func (l *Listener) Hold(c net.Conn) { l.with(c, func(_ *shard, _ uint32, n *conn) { n.Hold() }) }

// Release takes one Hold back. After the last one the idle timeouts restart. More calls of Release
// than of Hold do nothing.
func (l *Listener) Release(c net.Conn) { l.with(c, func(_ *shard, _ uint32, n *conn) { n.release(l) }) }

func (n *conn) release(l *Listener) {
	if n.State.Release() {
		n.Touch(&l.clock, &n.record)
	}
}

// Touch restarts the idle timeouts, as if bytes had passed in both directions.
func (l *Listener) Touch(c net.Conn) {
	l.with(c, func(_ *shard, _ uint32, n *conn) { n.Touch(&l.clock, &n.record) })
}

// Ready ends the handshake: Config.HandshakeTimeout does not apply any more.
func (l *Listener) Ready(c net.Conn) { l.with(c, func(_ *shard, _ uint32, n *conn) { n.ready() }) }

func (n *conn) ready() { n.record.Set(conntable.Ready, true) }

// BeginMessage says that a message of the peer begins to come in: Config.MinRate applies until
// EndMessage. It does nothing while a message is open.
func (l *Listener) BeginMessage(c net.Conn) {
	l.with(c, func(s *shard, _ uint32, n *conn) {
		if n.State.BeginMessage(&l.clock, l.settings.Load().limits.Rate) {
			s.soon(n)
		}
	})
}

// EndMessage says that the message is complete. With MinRate.Always the next message begins.
func (l *Listener) EndMessage(c net.Conn) {
	l.with(c, func(_ *shard, _ uint32, n *conn) { n.State.EndMessage(&l.clock, l.settings.Load().limits.Rate) })
}

// ConnState tells the Listener what a net/http server does with a connection:
//
//	server := &http.Server{Handler: handler, ConnState: ln.ConnState}
//
// A request that is being served holds its connection, and the first one ends the handshake. A
// connection that was hijacked, for WebSocket, is held no more and judged by its bytes. A closed
// connection is forgotten at once. With HTTP/2 a connection is held while it has streams. A warning
// tells of a listener around this one that hides its connections.
func (l *Listener) ConnState(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		if _, ok := root(c); !ok {
			l.warn(&l.warnings.hidden, "requests of a connection do not hold it", "error", errNoSocket(c))
		}
	}
	l.with(c, func(s *shard, id uint32, n *conn) {
		switch active := state == http.StateActive; {
		case active && !n.active:
			n.ready()
			n.Hold()
		case !active && n.active:
			n.release(l)
		}
		n.active = state == http.StateActive
		if state == http.StateClosed && s.ends[id] == nil {
			s.drop(id, n)
		}
	})
}
