package idle

import "time"

// A simStyle is how a peer behaves.
type simStyle uint8

const (
	simBeats    simStyle = iota // sends at an interval that is below its timeouts
	simEdge                     // sends at an interval near a timeout
	simBursts                   // sends several messages, and pauses
	simSilent                   // sends nothing at all
	simVanishes                 // sends for a while, and is gone without a FIN
	simFinishes                 // sends for a while, and then a FIN
	simResets                   // sends for a while, and then a RST
	simTrickles                 // sends single bytes
	simShakes                   // sends a login in two round trips, and then beats
	simStyles                   // number of styles
)

// A simPeer is the other end of a connection, with its part of the network.
type simPeer struct {
	w        *simWorld
	sock     *simSock
	style    simStyle
	interval time.Duration
	message  int           // bytes
	until    time.Duration // when it vanishes or ends
	delay    time.Duration // of the network, one way
	answers  bool          // pings
	returns  bool          // it connects again when the server closes
	vanished bool

	lost     int // bytes that were sent and that the network has lost
	lostFin  bool
	lostPong bool
	retries  int
	retrying bool

	space    int // of its receive buffer
	buffered int // bytes that it has not read
	appetite int // bytes that it reads at a time; 0 for all at once, -1 for none
	readsAt  time.Duration
	pings    int // that it has answered
}

// begin plans what the peer does by itself.
func (p *simPeer) begin() {
	if p.appetite > 0 {
		p.w.after(p.readsAt, p.eat)
	}
	switch p.style {
	case simSilent:
	case simShakes:
		p.send(p.message, false)
		p.w.after(4*p.delay+p.w.upTo(p.interval), func() {
			p.send(p.message, false)
			p.w.after(p.interval, p.beat)
		})
	default:
		p.w.after(p.w.upTo(p.interval), p.beat)
	}
}

func (p *simPeer) beat() {
	if p.vanished || p.sock.closed {
		return
	}
	if p.until != 0 && p.w.now >= p.until {
		p.end()
		return
	}
	next := p.interval
	switch p.style {
	case simBursts:
		for range 1 + p.w.rng.IntN(5) {
			p.send(p.message, p.answers)
		}
	case simTrickles:
		p.send(1, false)
	case simEdge:
		p.send(p.message, p.answers)
		next += p.w.upTo(p.interval / 5)
	default:
		p.send(p.message, p.answers)
	}
	p.w.after(next, p.beat)
}

func (p *simPeer) end() {
	switch p.style {
	case simFinishes:
		p.transmit(0, true, false)
	case simResets:
		p.w.after(p.delay, func() {
			if !p.w.isLost(p.sock) {
				p.sock.reset()
			}
		})
		p.vanished = true
	default:
		p.w.trace(p.sock.life, "peer vanishes")
		p.vanished = true
	}
}

func (p *simPeer) send(n int, pong bool) { p.transmit(n, false, pong) }

// transmit sends bytes. What comes after a lost packet waits for its retransmission.
func (p *simPeer) transmit(n int, fin, pong bool) {
	p.w.after(p.delay, func() {
		if !p.retrying && !p.w.isLost(p.sock) {
			p.sock.arrive(n, fin, pong)
			return
		}
		p.lost += n
		p.lostFin, p.lostPong = p.lostFin || fin, p.lostPong || pong
		if !p.retrying {
			p.retrying, p.retries = true, 0
			p.w.after(simRTO, p.retry)
		}
	})
}

// retry retransmits with exponential back-off.
func (p *simPeer) retry() {
	if p.vanished || p.sock.closed {
		return
	}
	if p.w.isLost(p.sock) {
		p.retries++
		p.w.after(min(simRTO<<min(p.retries, 20), simMaxRTO), p.retry)
		return
	}
	n, fin, pong := p.lost, p.lostFin, p.lostPong
	p.lost, p.lostFin, p.lostPong, p.retrying = 0, false, false, false
	p.sock.arrive(n, fin, pong)
}

// window is how many bytes the peer has room for.
func (p *simPeer) window() int { return p.space - p.buffered }

// receive takes bytes of the server.
func (p *simPeer) receive(n int) {
	if p.appetite != 0 {
		p.buffered += n
	}
	if p.answers && p.sock.pingsWritten > p.pings {
		p.pings = p.sock.pingsWritten
		p.send(2, true)
	}
}

// eat reads some of what was received, which opens the window.
func (p *simPeer) eat() {
	if p.vanished || p.sock.closed {
		return
	}
	n := min(p.appetite, p.buffered)
	p.buffered -= n
	if n > 0 {
		p.openWindow()
	}
	p.w.after(p.readsAt, p.eat)
}

// openWindow tells the server of the room, again if the network loses that.
func (p *simPeer) openWindow() {
	p.w.after(p.delay, func() {
		switch {
		case p.sock.closed:
		case p.w.isLost(p.sock):
			p.w.after(simRTO, p.openWindow)
		default:
			p.sock.push()
		}
	})
}

// serverClosed is called when the server has closed the connection.
func (p *simPeer) serverClosed() {
	if p.returns && p.w.now < p.w.horizon {
		p.w.after(p.w.upTo(p.interval), p.w.connect)
	}
}
