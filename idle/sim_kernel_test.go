package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A simFamily is the knowledge of the simulated kernel about its sockets.
type simFamily uint8

const (
	simTCP     simFamily = iota // dates received and sent bytes
	simUnix                     // knows only how many bytes wait; loses none
	simBSD                      // TCP without dates, and without the amount of output
	simZeros                    // TCP with zeros in all answers
	simFamily0                  // number of families
)

const (
	simRTO    = 200 * time.Millisecond // time until the first retransmission
	simMaxRTO = 120 * time.Second
)

// A simSock is a connection in the kernel. It does not depend on the server's process.
type simSock struct {
	w    *simWorld
	fd   int
	conn *simConn
	peer *simPeer
	life *simLife

	unread     int // waiting bytes of the peer
	pongUnread bool
	received   uint64
	lastRecv   time.Duration
	fin, rst   bool // has arrived

	room         int // size of the send buffer
	queued       int // bytes in the send buffer
	unsent       int // bytes in the send buffer that were not sent yet
	sent, acked  uint64
	lastSend     time.Duration // retransmissions included
	retransmits  int
	resending    bool
	outLost      int // sent bytes that did not reach the peer
	ackLost      int // sent bytes that reached the peer without an acknowledgement
	closed       bool
	pingsWritten int
}

// arrive receives bytes of the peer from the network.
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

// reset receives a RST of the peer from the network.
func (s *simSock) reset() {
	if s.closed {
		return
	}
	s.rst, s.unread = true, 0
	s.life.ended()
	s.w.trace(s.life, "RST arrives")
	s.conn.readable()
}

// write takes as many bytes of the server as the send buffer has room for.
func (s *simSock) write(n int) int {
	n = min(n, s.room-s.queued)
	s.queued += n
	s.unsent += n
	s.push()
	s.life.pending()
	return n
}

// push sends as many bytes as the window of the peer has room for.
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

// delivered is called when bytes reach the peer, or would have reached it without loss.
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

// taken is called when the acknowledgement of bytes reaches the server.
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

// resend retransmits unacknowledged bytes with exponential back-off.
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

// answer answers a question about the socket.
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

// outstanding returns how many bytes the kernel holds that the peer has not acknowledged. On a unix
// socket, these are the bytes that the peer has not read.
func (s *simSock) outstanding() int {
	if s.w.family == simUnix || s.w.family == simZeros {
		return s.queued
	}
	return s.unsent + int(s.sent-s.acked)
}
