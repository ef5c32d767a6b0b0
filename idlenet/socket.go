package idlenet

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// A socket is a connection of package net, or one that offers the same.
type socket interface {
	net.Conn
	syscall.Conn
}

// root returns the connection of package net inside c. It reports false if there is none.
func (r *Reaper) root(c net.Conn) (own socket, ok bool) {
	for layers := 0; c != nil && layers < 8; layers++ {
		switch inner := c.(type) {
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		case socket:
			return inner, reflect.TypeOf(inner).Kind() == reflect.Pointer // its address is its name
		default:
			if r.unwrap == nil {
				return nil, false
			}
			c = r.unwrap(c)
		}
	}
	return nil, false
}

func errNoSocket(c net.Conn) error {
	if c == nil {
		return errors.New("idlenet: the connection is nil, and so it is not a socket: ConnOf finds one if the server was passed to AttachHTTP")
	}
	if _, is := c.(socket); is {
		return fmt.Errorf("idlenet: %T is a socket, but not a pointer: return a pointer to it, or give it a method NetConn that returns the connection inside", c)
	}
	return fmt.Errorf("idlenet: %T is not a socket: it needs a method SyscallConn, or NetConn that returns the connection inside, or Config.Unwrap that does", c)
}

// askKernel queries the kernel about a connection.
func askKernel(own socket, fresh time.Duration, ev *verdict.Evidence) (open bool) {
	return control(own, func(fd uintptr) { kernel.AskUnlessFresh(int(fd), fresh, ev) }) == nil
}

// control calls a function with the descriptor of a socket. The error says that the socket is
// closed.
func control(own socket, do func(fd uintptr)) error {
	raw, err := own.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(do)
}

// isClosed reports whether the server has closed a connection.
func isClosed(own socket) bool { return control(own, func(uintptr) {}) != nil }

// keepAlive makes the kernel probe the peer.
func (r *Reaper) keepAlive(own socket, d time.Duration) {
	tcp, ok := own.(interface { // a *net.TCPConn, or a type that embeds one
		SetKeepAliveConfig(config net.KeepAliveConfig) error
	})
	if !ok {
		return
	}
	cfg := net.KeepAliveConfig{Enable: true} // as package net has it
	if d > 0 {
		cfg.Idle, cfg.Interval, cfg.Count = kernel.KeepAlive(d)
	}
	err := tcp.SetKeepAliveConfig(cfg)
	_ = control(own, func(fd uintptr) { err = errors.Join(err, kernel.SetUserTimeout(int(fd), d)) })
	if err != nil {
		r.watch.Warn(&r.warnings.keepalive, "setting keepalive", "remote", watch.NameOf(own.RemoteAddr()), "error", err)
	}
}

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// tell makes the server close a connection: its present and later Reads fail with
// os.ErrDeadlineExceeded.
func tell(own socket) { _ = own.SetReadDeadline(aLongTimeAgo) }

// closeNow closes a connection. With reset the peer gets a RST, or a FIN first if the descriptor
// blocks. It does not wait for the peer, whatever the server has set with SetLinger.
func closeNow(own socket, reset bool) {
	_ = control(own, func(fd uintptr) { kernel.Interrupt(int(fd)) })
	if tcp, ok := own.(interface{ SetLinger(seconds int) error }); ok {
		linger := -1 // the kernel sends in the background what waits
		if reset {
			linger = 0
		}
		_ = tcp.SetLinger(linger)
	}
	_ = own.Close()
}

// A stampedConn is a connection with Config.Stamp.
type stampedConn struct {
	net.Conn
	reaper *Reaper
	heard  atomic.Int64 // one more than the stamp of the last Read that returned bytes; 0 for none
}

// Read reads from the connection inside and notes when bytes came.
func (c *stampedConn) Read(b []byte) (n int, err error) {
	if n, err = c.Conn.Read(b); n > 0 {
		now := c.reaper.watch.Clock.Stamp()
		if heard := int64(now) + 1; c.heard.Load() != heard {
			c.heard.Store(heard)
		}
		if c.reaper.stamped.Load() != int64(now) {
			c.reaper.stamped.Store(int64(now))
		}
	}
	return n, err
}

// NetConn returns the connection inside.
func (c *stampedConn) NetConn() net.Conn { return c.Conn }
