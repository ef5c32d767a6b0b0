package idlenet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	simRTO    = 200 * time.Millisecond // time until the first retransmission
	simMaxRTO = 120 * time.Second
)

// A simConn is a connection of package net. Its address is used again when the Listener and the
// server have forgotten it.
type simConn struct{ *simSock }

// A simSock is the part of a connection that lasts no longer than the connection.
type simSock struct {
	w    *simWorld
	life *simLife
	peer *simPeer

	unread   int // waiting bytes of the peer
	received uint64
	lastRecv time.Duration
	fin, rst bool // has arrived

	room        int // size of the send buffer
	queued      int // bytes in the send buffer
	unsent      int // bytes in the send buffer that were not sent yet
	sent, acked uint64
	lastSend    time.Duration // retransmissions included
	retransmits int
	resending   bool
	outLost     int // sent bytes that did not reach the peer
	ackLost     int // sent bytes that reached the peer without an acknowledgement
	pings       int // written

	deadline time.Duration // of Read; 0 if there is none
	closed   bool
}

var (
	_ socket          = (*simConn)(nil)
	_ syscall.RawConn = simRaw{}
)

// The methods below are those of package net.

func (c *simSock) Read(b []byte) (int, error) {
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.deadline != 0 && c.deadline <= c.w.now:
		return 0, os.ErrDeadlineExceeded
	case c.unread > 0:
		n := min(len(b), c.unread)
		c.unread -= n
		c.life.read(n)
		return n, nil
	case c.rst:
		return 0, syscall.ECONNRESET
	case c.fin:
		return 0, io.EOF
	}
	panic("BUG: the simulated server reads from an empty socket")
}

func (c *simSock) Write(b []byte) (int, error) {
	if c.closed {
		return 0, net.ErrClosed
	}
	return c.write(len(b)), nil
}

// Close is called by the Listener only. The server calls shut.
func (c *simSock) Close() error {
	c.life.cut()
	c.shut()
	return nil
}

// SetReadDeadline is called by the Listener only.
func (c *simSock) SetReadDeadline(t time.Time) error {
	if c.w.faulty && c.w.one(20) {
		c.life.serverCloses() // another goroutine was faster
	}
	c.life.toldToClose(t)
	if !c.closed {
		c.deadline = c.w.now
		c.life.wake()
	}
	return nil
}

func (c *simSock) SyscallConn() (syscall.RawConn, error) { return simRaw{sock: c}, nil }

// A simRaw is what SyscallConn returns.
type simRaw struct {
	syscall.RawConn
	sock *simSock
}

func (r simRaw) Control(do func(fd uintptr)) error {
	if r.sock.closed {
		return net.ErrClosed
	}
	do(0)
	return nil
}

func (c *simSock) LocalAddr() net.Addr              { return c.w.addr }
func (c *simSock) RemoteAddr() net.Addr             { return c.w.addr }
func (c *simSock) SetDeadline(time.Time) error      { panic("BUG: not called") }
func (c *simSock) SetWriteDeadline(time.Time) error { panic("BUG: not called") }
func (c *simSock) setDeadline(at time.Duration)     { c.deadline = at }
func (c *simSock) hasInput() bool                   { return c.unread > 0 || c.fin || c.rst || c.closed }
func (c *simSock) readReturns() bool                { return c.hasInput() || c.deadline != 0 && c.deadline <= c.w.now }
func (c *simSock) isOver() bool                     { return c.rst || c.fin && c.unread == 0 }

// shut closes the connection.
func (c *simSock) shut() {
	if c.closed {
		return
	}
	c.closed = true
	c.peer.serverClosed()
}

// The methods below are those of the kernel.

// arrive receives bytes of the peer from the network.
func (c *simSock) arrive(n int, fin bool) {
	if c.closed || c.rst {
		return
	}
	if n > 0 {
		c.life.check()
		c.unread += n
		c.received += uint64(n)
		c.lastRecv = c.w.now
		c.life.arrived(n)
	}
	if fin {
		c.fin = true
		c.w.trace(c.life, "FIN arrives")
	}
	c.life.wake()
}

// reset receives a RST of the peer from the network.
func (c *simSock) reset() {
	if c.closed {
		return
	}
	c.life.check()
	c.rst, c.unread, c.queued, c.unsent = true, 0, 0, 0
	c.life.pending()
	c.w.trace(c.life, "RST arrives")
	c.life.wake()
}

// write takes as many bytes of the server as the send buffer has room for.
func (c *simSock) write(n int) int {
	n = max(min(n, c.room-c.queued), 0)
	if c.rst || n == 0 {
		return 0
	}
	c.queued += n
	c.unsent += n
	c.push()
	c.life.pending()
	return n
}

// push sends as many bytes as the window of the peer has room for.
func (c *simSock) push() {
	n := min(c.unsent, c.peer.window()-int(c.sent-c.acked))
	if n <= 0 || c.closed || c.rst {
		return
	}
	c.unsent -= n
	c.sent += uint64(n)
	c.lastSend = c.w.now
	c.life.wrote()
	c.w.after(c.peer.delay, func() { c.delivered(n) })
}

// delivered is called when bytes reach the peer, or would have reached it without loss.
func (c *simSock) delivered(n int) {
	switch {
	case c.resending || c.peer.vanished || c.w.isLost():
		c.outLost += n
		c.resendLater()
	default:
		c.peer.receive(n)
		c.acknowledge(n)
	}
}

// acknowledge sends an acknowledgement of the peer to the server.
func (c *simSock) acknowledge(n int) {
	c.w.after(c.peer.delay, func() {
		if c.w.isLost() {
			c.ackLost += n
			c.resendLater()
			return
		}
		c.taken(n)
	})
}

// taken is called when the acknowledgement of bytes reaches the server.
func (c *simSock) taken(n int) {
	if c.rst {
		return
	}
	c.acked += uint64(n)
	c.queued -= n
	c.retransmits = 0
	c.life.took(c.unsent > 0)
	c.push()
	c.life.pending()
}

func (c *simSock) resendLater() {
	if c.resending {
		return
	}
	c.resending = true
	c.w.after(simRTO-2*min(c.peer.delay, simRTO/2), c.resend)
}

// resend retransmits unacknowledged bytes with exponential back-off.
func (c *simSock) resend() {
	if c.closed || c.rst {
		return
	}
	c.retransmits++
	c.life.resent()
	c.lastSend = c.w.now
	if c.peer.vanished || c.w.isLost() {
		c.w.after(min(simRTO<<min(c.retransmits, 20), simMaxRTO), c.resend)
		return
	}
	c.w.after(2*c.peer.delay, func() {
		n := c.outLost + c.ackLost
		c.peer.receive(c.outLost)
		c.outLost, c.ackLost, c.resending = 0, 0, false
		c.taken(n)
	})
}

// answer answers a question of the Listener.
func (c *simSock) answer(ev *verdict.Evidence) {
	*ev = verdict.Evidence{Queued: c.queued}
	switch {
	case c.isOver():
		ev.Found = verdict.Ended
	case c.unread > 0:
		ev.Found = verdict.Unread
	}
	if c.w.unix {
		return
	}
	jiffy := c.w.jiffy
	since := func(at time.Duration) time.Duration {
		return ((c.w.now/jiffy - at/jiffy) * jiffy).Truncate(time.Millisecond)
	}
	ev.Dated, ev.Step = true, jiffy+time.Millisecond
	ev.Silent, ev.Quiet = since(c.lastRecv), since(c.lastSend)
	ev.Received, ev.Acked = c.received, c.acked
	ev.Counted, ev.Moved = true, uint32(c.acked+c.sent)
	ev.InFlight, ev.Resent = c.sent > c.acked, c.retransmits > 0
	ev.Unsent = c.unsent
}
