package idle

import (
	"errors"
	"net"
	"reflect"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
)

// maxLayers is the most wrappers that inner unwraps: a wrapper may contain itself.
const maxLayers = 32

// inner returns the connection inside all wrappers that have a method NetConn or Unwrap. The
// wrappers of crypto/tls and other packages have one for a net.Conn.
func inner(c gnet.Conn) gnet.Conn {
	for range maxLayers {
		var inside net.Conn
		switch w := c.(type) {
		case interface{ NetConn() gnet.Conn }:
			inside = w.NetConn()
		case interface{ NetConn() net.Conn }:
			inside = w.NetConn()
		case interface{ Unwrap() gnet.Conn }:
			inside = w.Unwrap()
		case interface{ Unwrap() net.Conn }:
			inside = w.Unwrap()
		}
		next, ok := inside.(gnet.Conn)
		if !ok {
			return c
		}
		c = next
	}
	return c
}

// isForeign reports whether the event loop cannot close a connection itself. The connection is from
// another package than the loop, and the loop would panic.
func isForeign(c gnet.Conn) bool { return packageOf(c) != packageOf(c.EventLoop()) }

func packageOf(v any) string {
	t := reflect.TypeOf(v)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return ""
	}
	return t.PkgPath()
}

// isOf reports whether s is the state of one of gnet's own connections.
func isOf(s *conn, c gnet.Conn) bool { return s.Used() && address(s.Front) == address(c) }

// layers are the connections around gnet's own.
type layers map[*conn]gnet.Conn

// outer returns a connection as the handler sees it, with the layers around it.
func (l layers) outer(s *conn) gnet.Conn {
	if c, ok := l[s]; ok {
		return c
	}
	return s.Front
}

// set stores the connection around that of a state.
func (l layers) set(s *conn, c gnet.Conn) {
	if !isOf(s, c) {
		l[s] = c
	}
}

// seek returns the watched connection that c is or contains, and its record. The record is nil if
// the loop does not watch such a connection.
func (l *loop) seek(c gnet.Conn) (own gnet.Conn, r *conntable.Record, id uint32) {
	if r, id = l.table.Find(key(c)); r != nil {
		return c, r, id
	}
	own = inner(c)
	if r, id = l.table.Find(key(own)); r == nil && reflect.TypeOf(own).Kind() != reflect.Pointer {
		// A wrapper that is not a pointer has another address at each event. Two of them are equal
		// if they wrap the same connection.
		if found, at := l.table.FindDescriptor(key(own)); found != nil {
			if known := l.At(at).Front; reflect.TypeOf(own).Comparable() && known == own {
				return known, found, at
			}
		}
	}
	return own, r, id
}

const minKeepAlive = 8 * time.Second // TCP options count in seconds

// setTCPKeepAlive makes the kernel probe a peer that is silent for half of d, and close the
// connection after d. If d is 0, it switches the probes off. Sockets other than TCP are left alone.
func setTCPKeepAlive(c gnet.Conn, d time.Duration) error {
	if _, ok := c.LocalAddr().(*net.TCPAddr); !ok {
		return nil
	}
	silence, interval, probes := kernel.KeepAlive(max(d, minKeepAlive)) // ignored if d is 0
	return errors.Join(c.SetKeepAlive(d > 0, silence, interval, probes), kernel.SetUserTimeout(c.Fd(), d))
}
