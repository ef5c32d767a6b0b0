package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A simFamily says what the simulated kernel knows about its sockets.
type simFamily uint8

const (
	simTCP     simFamily = iota // dates what it receives and sends
	simUnix                     // knows only what waits; nothing is ever lost
	simBSD                      // TCP without dates, and without the amount of output
	simZeros                    // TCP whose answers are zeros
	simFamily0                  // number of families
)

const (
	simRTO    = 200 * time.Millisecond // the first time until a packet is retransmitted
	simMaxRTO = 120 * time.Second
)

// A simSock is a connection as the kernel has it. Nothing in it depends on the server's process.
type simSock struct {
	w    *simWorld
	fd   int
	conn *simConn
	peer *simPeer
	life *simLife

	unread     int // bytes of the peer that wait
	pongUnread bool
	received   uint64
	lastRecv   time.Duration
	fin, rst   bool // arrived

	room         int // of the send buffer
	queued       int // bytes in the send buffer
	unsent       int // of them, those that were not sent yet
	sent, acked  uint64
	lastSend     time.Duration // retransmissions included
	retransmits  int
	resending    bool
	outLost      int // sent bytes that the peer has not got
	ackLost      int // sent bytes that the peer has got, and whose acknowledgement was lost
	closed       bool
	pingsWritten int
}

// arrive takes bytes of the peer from the network.
func (s *simSock) arrive(n int, fin, pong bool) {
	if s.closed || s.rst {
		return
	}
	if n > 0 {
		s.life.beforeHearing()
		s.unread += n
		s.pongUnread = s.pongUnread || pong
		s.received += uint64(n)
		s.lastRecv = s.w.now
		s.life.arrived(n)
	}
	if fin {
		s.fin = true
		s.life.ended()
		s.w.trace(s.life, "FIN arrives")
	}
	s.conn.readable()
}

// reset takes a RST of the peer from the network.
func (s *simSock) reset() {
	if s.closed {
		return
	}
	s.rst, s.unread = true, 0
	s.life.ended()
	s.w.trace(s.life, "RST arrives")
	s.conn.readable()
}

// write takes bytes of the server, as many as there is room for.
func (s *simSock) write(n int) int {
	n = min(n, s.room-s.queued)
	s.queued += n
	s.unsent += n
	s.push()
	s.life.pending()
	return n
}

// push sends what the window of the peer has room for.
func (s *simSock) push() {
	n := min(s.unsent, s.peer.window()-int(s.sent-s.acked))
	if n <= 0 || s.closed {
		return
	}
	s.unsent -= n
	s.sent += uint64(n)
	s.lastSend = s.w.now
	s.life.wrote()
	s.w.after(s.peer.delay, func() { s.delivered(n) })
}

// delivered is called when bytes reach the peer, or would have.
func (s *simSock) delivered(n int) {
	switch {
	case s.resending || s.peer.vanished || s.w.isLost(s):
		s.outLost += n
		s.resendLater()
	default:
		s.peer.receive(n)
		s.acknowledge(n)
	}
}

// acknowledge sends an acknowledgement of the peer to the server.
func (s *simSock) acknowledge(n int) {
	s.w.after(s.peer.delay, func() {
		if s.w.isLost(s) || s.w.acksAreLost() {
			s.ackLost += n
			s.resendLater()
			return
		}
		s.taken(n)
	})
}

// taken is called when the server knows that the peer has got bytes.
func (s *simSock) taken(n int) {
	s.acked += uint64(n)
	s.queued -= n
	s.retransmits = 0
	if s.unsent > 0 || s.conn.outbound > 0 {
		s.life.now.tookSome = s.w.now
	}
	s.life.took()
	s.push()
	s.life.pending()
	s.conn.writable()
}

func (s *simSock) resendLater() {
	if s.resending {
		return
	}
	s.resending = true
	s.w.after(simRTO-2*min(s.peer.delay, simRTO/2), s.resend)
}

// resend retransmits what was not acknowledged, and goes on with exponential back-off.
func (s *simSock) resend() {
	if s.closed {
		return
	}
	s.retransmits++
	s.lastSend = s.w.now
	s.life.resent()
	if s.peer.vanished || s.w.isLost(s) || s.w.acksAreLost() {
		s.w.after(min(simRTO<<min(s.retransmits, 20), simMaxRTO), s.resend)
		return
	}
	s.w.after(2*s.peer.delay, func() {
		n := s.outLost + s.ackLost
		s.peer.receive(s.outLost)
		s.outLost, s.ackLost, s.resending = 0, 0, false
		s.taken(n)
	})
}

// answer is the kernel's answer to a question about the socket.
func (s *simSock) answer(ev *verdict.Evidence) {
	*ev = verdict.Evidence{Queued: -1}
	switch {
	case s.rst || s.fin && s.unread == 0:
		ev.Found = verdict.Ended
	case s.unread > 0:
		ev.Found = verdict.Unread
	}
	switch s.w.family {
	case simBSD:
		return
	case simUnix, simZeros:
		ev.Queued = s.outstanding()
		return
	}
	jiffy := s.w.jiffy
	since := func(at time.Duration) time.Duration {
		return ((s.w.now/jiffy - at/jiffy) * jiffy).Truncate(time.Millisecond)
	}
	inFlight := int(s.sent - s.acked)
	ev.Dated, ev.Step = true, jiffy+time.Millisecond
	ev.Silent, ev.Quiet = since(s.lastRecv), since(s.lastSend)
	ev.Received, ev.Acked = s.received, s.acked
	ev.Counted, ev.Moved = true, uint32(s.acked+s.sent)
	ev.InFlight, ev.Resent = inFlight > 0, s.retransmits > 0
	ev.Unsent, ev.Queued = s.unsent, s.outstanding()
}

// outstanding returns how many bytes the kernel holds that the peer has not acknowledged or, on a unix
// socket, read.
func (s *simSock) outstanding() int {
	if s.w.family == simUnix || s.w.family == simZeros {
		return s.queued
	}
	return s.unsent + int(s.sent-s.acked)
}
