package sim

import (
	"cmp"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A Family is the knowledge of the simulated kernel about its sockets.
type Family uint8

const (
	TCP      Family = iota // dates received and sent bytes
	Unix                   // knows only how many bytes wait; loses none
	BSD                    // TCP without dates, and without the amount of output
	zeros                  // TCP with zeros in all answers
	families               // number of families
)

// A Sock is a connection in the kernel. It does not depend on the server's process.
type Sock struct {
	w    *World
	Peer *Peer
	life *Life

	Unread   int // waiting bytes of the peer
	received uint64
	lastRecv time.Duration // by the first path
	second   time.Duration // by the second path of Multipath TCP, 0 if none came by it
	Fin, Rst bool          // has arrived
	early    uint32        // segments that came before an earlier one
	gap      bool          // their bytes wait for it
	answered time.Duration // the last acknowledgement has come

	room        int // size of the send buffer
	Queued      int // bytes in the send buffer, which the peer has not acknowledged
	unsent      int // bytes in the send buffer that were not sent yet
	sent, acked uint64
	lastSend    time.Duration // retransmissions included
	retransmits int
	resending   bool
	outLost     int // sent bytes that did not reach the peer
	ackLost     int // sent bytes that reached the peer without an acknowledgement
	pings       int // written, and not answered
	Closed      bool
}

// arrive receives bytes of the peer from the network.
func (s *Sock) arrive(n int, fin bool) {
	if s.Closed || s.Rst {
		return
	}
	if n > 0 {
		s.life.Check()
		s.Unread += n
		s.received += uint64(n)
		s.date()
		s.answered, s.gap = s.w.Now, false
		s.life.arrived(n)
	}
	if fin {
		s.Fin = true
		s.life.ended()
		s.life.now.finished = s.w.Now
		s.w.Trace(s.life, "FIN arrives")
	}
	s.life.Conn.Readable()
}

// date notes that bytes of the peer have come by the path that it uses now.
func (s *Sock) date() {
	if s.Peer.hasLeft() {
		s.second = s.w.Now
	} else {
		s.lastRecv = s.w.Now
	}
}

// arriveEarly receives a segment of the peer behind a lost one. Its bytes cannot be read yet. Each
// path of Multipath TCP dates its own bytes, whatever is missing on another one.
func (s *Sock) arriveEarly() {
	if s.Closed || s.Rst || s.w.Family != TCP {
		return
	}
	s.life.Check()
	if s.early++; s.w.multipath {
		s.date()
		s.life.now.received = max(s.life.now.received, 1)
	} else {
		s.gap, s.answered = true, s.w.Now
	}
	s.life.now.arrival, s.life.now.pings = s.w.Now, 0
	s.w.N["early segments"]++
	s.w.Trace(s.life, "bytes arrive early")
}

// reset receives a RST of the peer from the network. It discards what waits in both directions.
func (s *Sock) reset() {
	if s.Closed {
		return
	}
	s.life.ended()
	s.Rst, s.Unread, s.Queued, s.unsent = true, 0, 0, 0
	s.life.now.finished = cmp.Or(s.life.now.finished, s.w.Now)
	s.life.pending()
	s.w.Trace(s.life, "RST arrives")
	s.life.Conn.Readable()
}

// Read takes bytes that wait, at most n.
func (s *Sock) Read(n int) int {
	n = min(n, s.Unread)
	s.Unread -= n
	s.life.now.unread = s.Unread > 0
	return n
}

// Write takes as many bytes of the server as the send buffer has room for.
func (s *Sock) Write(n int) int {
	if s.Rst {
		return 0
	}
	n = min(n, s.room-s.Queued)
	s.Queued += n
	s.unsent += n
	s.push()
	s.life.pending()
	return n
}

// HasRoom reports whether the send buffer takes bytes, HasInput whether a read returns something,
// and IsOver whether the server cannot read any more.

func (s *Sock) HasRoom() bool  { return s.Queued < s.room }
func (s *Sock) HasInput() bool { return s.Unread > 0 || s.Fin || s.Rst }
func (s *Sock) IsOver() bool   { return s.Rst || s.Fin && s.Unread == 0 }

// Close closes the connection on the side of the server. The peer may connect again.
func (s *Sock) Close() {
	if p := s.Peer; !s.Closed && p.returns && s.w.Now < s.w.Horizon {
		s.w.After(s.w.UpTo(p.interval), s.w.connect)
	}
	s.Closed = true
}

// push sends as many bytes as the window of the peer has room for.
func (s *Sock) push() {
	n := min(s.unsent, s.Peer.space-s.Peer.buffered-int(s.sent-s.acked))
	if n <= 0 || s.Closed || s.Rst {
		return
	}
	s.unsent -= n
	s.sent += uint64(n)
	s.lastSend = s.w.Now
	s.life.wrote()
	s.w.After(s.Peer.delay, func() { s.delivered(n) })
}

// delivered is called when bytes reach the peer, which acknowledges them, or would have done so.
func (s *Sock) delivered(n int) {
	if s.resending || s.Peer.vanished || s.w.isLost(s.life) {
		s.outLost += n
		s.resendLater()
		return
	}
	s.Peer.receive(n)
	s.w.After(s.Peer.delay, func() {
		if s.w.isLost(s.life) || s.w.acksAreLost() {
			s.ackLost += n
			s.resendLater()
			return
		}
		s.taken(n)
	})
}

// taken is called when the acknowledgement of bytes reaches the server.
func (s *Sock) taken(n int) {
	if s.Rst {
		return
	}
	s.acked += uint64(n)
	s.answered = s.w.Now
	s.Queued -= n
	s.retransmits = 0
	s.life.took(n, s.unsent > 0 || s.life.Conn.OutboundBuffered() > 0)
	s.push()
	s.life.pending()
	s.life.Conn.Writable()
}

func (s *Sock) resendLater() {
	if !s.resending {
		s.resending = true
		s.w.After(rto-2*min(s.Peer.delay, rto/2), s.resend)
	}
}

// resend retransmits unacknowledged bytes with exponential back-off.
func (s *Sock) resend() {
	if s.Closed || s.Rst {
		return
	}
	s.retransmits++
	s.life.resent()
	s.lastSend = s.w.Now
	if s.Peer.vanished || s.w.isLost(s.life) || s.w.acksAreLost() {
		s.w.After(min(rto<<min(s.retransmits, 20), maxRTO), s.resend)
		return
	}
	s.w.After(2*s.Peer.delay, func() {
		n := s.outLost + s.ackLost
		s.Peer.receive(s.outLost)
		s.outLost, s.ackLost, s.resending = 0, 0, false
		s.taken(n)
	})
}

// answer answers a question about the socket.
func (s *Sock) answer(ev *verdict.Evidence) {
	*ev = verdict.Evidence{Queued: -1}
	switch {
	case s.IsOver():
		ev.Found = verdict.Ended
	case s.Unread > 0:
		ev.Found = verdict.Unread
	}
	if s.w.Family != BSD {
		ev.Queued = s.Queued
	}
	if s.w.Family != TCP {
		return
	}
	jiffy := s.w.Jiffy
	since := func(at time.Duration) time.Duration {
		return ((s.w.Now/jiffy - at/jiffy) * jiffy).Truncate(time.Millisecond)
	}
	ev.Dated, ev.Step = true, jiffy+time.Millisecond
	ev.Silent, ev.Quiet = since(max(s.lastRecv, s.second)), since(s.lastSend)
	ev.Received, ev.Acked = max(s.received, When(s.w.multipath, min(uint64(s.early), 1))), s.acked
	ev.Counted, ev.Moved = true, uint32(s.acked+s.sent)
	ev.InFlight, ev.Resent = s.sent > s.acked, s.retransmits > 0
	ev.Unsent, ev.HalfEnded = s.unsent, s.Fin || s.Rst
	if ev.Answered = since(s.answered); s.gap && ev.Found == verdict.Nothing && ev.Answered < ev.Silent {
		ev.Early = s.early
	}
}

// A style is the behaviour of a peer.
type style uint8

const (
	heartbeats style = iota // sends at an interval below its timeouts
	edge                    // sends at an interval near a timeout
	bursts                  // sends several messages, and pauses
	silent                  // sends nothing
	vanishes                // sends for a while, and vanishes without a FIN
	finishes                // sends for a while, and then a FIN
	resets                  // sends for a while, and then a RST
	trickles                // sends single bytes
	shakes                  // sends a login in two round trips, then heartbeats
	styles                  // number of styles
)

const (
	rto    = 200 * time.Millisecond // time until the first retransmission
	maxRTO = 120 * time.Second
)

// A Peer is the remote end of a connection, with its part of the network.
type Peer struct {
	w        *World
	sock     *Sock
	style    style
	interval time.Duration
	message  int           // bytes
	until    time.Duration // when it vanishes or ends
	leaves   time.Duration // its first path is lost then, and the second one takes over; 0 for never
	left     bool          // it knows
	delay    time.Duration // of the network, one way
	answers  bool          // answers pings
	returns  bool          // connects again after the server has closed
	vanished bool

	lost    int // sent bytes that the network has lost
	lostFin bool
	retries int // of the lost bytes; 0 if none are lost

	space    int // size of the receive buffer
	buffered int // received bytes that were not read
	appetite int // bytes per read; 0 for all, -1 for none
	readsAt  time.Duration
}

func (w *World) newPeer() *Peer {
	p := &Peer{w: w, style: style(w.Rand.IntN(int(styles))), message: 1 + w.Rand.IntN(200)}
	base := w.shortestIdle()
	p.interval = w.Skewed(base/8, base*3/4)
	p.delay = w.Skewed(20*time.Microsecond, 20*time.Millisecond)
	p.answers, p.returns = w.One(2), w.One(3)
	p.space = 1000 + w.Rand.IntN(60000)
	switch p.style {
	case edge:
		p.interval = base - base/10
	case vanishes, finishes, resets:
		p.until = w.Now + w.UpTo(2*w.Longest)
	}
	switch {
	case w.One(8):
		p.appetite = -1
	case w.One(4):
		p.appetite, p.readsAt = 1+w.Rand.IntN(5000), w.UpTo(w.Longest)
	}
	if w.Family == Unix {
		p.delay = 10 * time.Microsecond
	}
	if w.multipath && w.extra.IntN(2) == 0 {
		p.leaves = w.Now + time.Duration(w.extra.Int64N(int64(2*w.Longest)))
	}
	if w.Kind == NetworkOut {
		p.style, p.interval, p.until, p.appetite, p.returns = heartbeats, w.Skewed(base/16, base/3), 0, 0, false
		p.delay = w.Skewed(20*time.Microsecond, time.Millisecond)
	}
	return p
}

func (p *Peer) begin() {
	if p.appetite > 0 {
		p.w.After(p.readsAt, p.eat)
	}
	switch p.style {
	case silent:
	case shakes:
		p.Send(p.message)
		p.w.After(4*p.delay+p.w.UpTo(p.interval), func() {
			p.Send(p.message)
			p.w.After(p.interval, p.heartbeat)
		})
	default:
		p.w.After(p.w.UpTo(p.interval), p.heartbeat)
	}
}

func (p *Peer) heartbeat() {
	if p.isGone() {
		return
	}
	if p.until != 0 && p.w.Now >= p.until {
		p.end()
		return
	}
	times, n, next := 1, p.message, p.interval
	switch p.style {
	case bursts:
		times += p.w.Rand.IntN(5)
	case trickles:
		n = 1
	case edge:
		next += p.w.UpTo(p.interval / 5)
	}
	for range times {
		p.Send(n)
	}
	p.w.After(next, p.heartbeat)
}

func (p *Peer) end() {
	if p.style == finishes {
		p.transmit(0, true)
		return
	}
	p.w.Trace(p.sock.life, "peer vanishes")
	if p.vanished = true; p.style == resets {
		p.w.After(p.delay, func() {
			if !p.w.isLost(p.sock.life) {
				p.sock.reset()
			}
		})
	}
}

func (p *Peer) isGone() bool  { return p.vanished || p.sock.Closed }
func (p *Peer) hasLeft() bool { return p.leaves != 0 && p.w.Now >= p.leaves }
func (p *Peer) Send(n int)    { p.transmit(n, false) }

// transmit sends bytes. Bytes after a lost packet wait for its retransmission.
func (p *Peer) transmit(n int, fin bool) {
	p.w.After(p.delay, func() {
		leaves := p.hasLeft() && !p.left // what it sends on its first path is lost
		p.w.N["hand-overs"] += When(leaves, 1)
		if p.left = p.hasLeft(); p.retries == 0 && !leaves && !p.w.isLost(p.sock.life) {
			p.sock.arrive(n, fin)
			return
		}
		if p.retries > 0 && n > 0 && !p.w.isDown(p.sock.life) && p.w.extra.IntN(2) == 0 {
			p.sock.arriveEarly()
		}
		p.lost += n
		p.lostFin = p.lostFin || fin
		if p.retries == 0 {
			p.retries = 1
			p.w.After(rto, p.retry)
		}
	})
}

func (p *Peer) retry() {
	if p.isGone() {
		return
	}
	if p.w.isLost(p.sock.life) {
		p.w.After(min(rto<<min(p.retries, 20), maxRTO), p.retry)
		p.retries++
		return
	}
	n, fin := p.lost, p.lostFin
	p.lost, p.lostFin, p.retries = 0, false, 0
	p.sock.arrive(n, fin)
}

func (p *Peer) receive(n int) {
	if p.appetite != 0 {
		p.buffered += n
	}
	if p.answers && p.sock.pings > 0 {
		p.sock.pings = 0
		p.Send(2)
	}
}

// eat reads some received bytes, which opens the window.
func (p *Peer) eat() {
	if p.isGone() {
		return
	}
	if n := min(p.appetite, p.buffered); n > 0 {
		p.buffered -= n
		p.openWindow()
	}
	p.w.After(p.readsAt, p.eat)
}

// openWindow sends a window update, and repeats it if the network loses it.
func (p *Peer) openWindow() {
	p.w.After(p.delay, func() {
		switch {
		case p.sock.Closed:
		case p.w.isLost(p.sock.life):
			p.w.After(rto, p.openWindow)
		default:
			p.sock.push()
		}
	})
}
