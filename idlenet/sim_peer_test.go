package idlenet

import "time"

// A simStyle is the behaviour of a peer.
type simStyle uint8

const (
	simHeartbeats simStyle = iota // sends at an interval below its timeouts
	simEdge                       // sends at an interval near a timeout
	simSilent                     // sends nothing
	simVanishes                   // sends for a while, and vanishes without a FIN
	simFinishes                   // sends for a while, and then a FIN
	simResets                     // sends for a while, and then a RST
	simTrickles                   // sends single bytes
	simStyles                     // number of styles
)

// A simPeer is the remote end of a connection, with its part of the network.
type simPeer struct {
	w        *simWorld
	sock     *simSock
	style    simStyle
	interval time.Duration
	message  int           // bytes
	until    time.Duration // when it vanishes or ends
	delay    time.Duration // of the network, one way
	answers  bool          // answers pings
	returns  bool          // connects again after the server has closed
	vanished bool

	lost     int // sent bytes that the network has lost
	lostFin  bool
	retries  int
	retrying bool

	space    int // size of the receive buffer
	buffered int // received bytes that were not read
	appetite int // bytes per read; 0 for all, -1 for none
	readsAt  time.Duration
	answered int // pings
}

// begin plans the actions of the peer.
func (p *simPeer) begin() {
	if p.appetite > 0 {
		p.w.after(p.readsAt, p.eat)
	}
	if p.style != simSilent {
		p.w.after(p.w.upTo(p.interval), p.heartbeat)
	}
}

func (p *simPeer) heartbeat() {
	if p.vanished || p.sock.closed {
		return
	}
	if p.until != 0 && p.w.now >= p.until {
		p.end()
		return
	}
	next := p.interval
	switch p.style {
	case simTrickles:
		p.transmit(1, false)
	case simEdge:
		p.transmit(p.message, false)
		next += p.w.upTo(p.interval / 5)
	default:
		p.transmit(p.message, false)
	}
	p.w.after(next, p.heartbeat)
}

func (p *simPeer) end() {
	p.vanished = true
	switch p.style {
	case simFinishes:
		p.vanished = false
		p.transmit(0, true)
	case simResets:
		p.w.after(p.delay, func() {
			if !p.w.isLost() {
				p.sock.reset()
			}
		})
	default:
		p.w.trace(p.sock.life, "peer vanishes")
	}
}

// transmit sends bytes. Bytes after a lost packet wait for its retransmission.
func (p *simPeer) transmit(n int, fin bool) {
	p.w.after(p.delay, func() {
		if !p.retrying && !p.w.isLost() {
			p.sock.arrive(n, fin)
			return
		}
		p.lost += n
		p.lostFin = p.lostFin || fin
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
	if p.w.isLost() {
		p.retries++
		p.w.after(min(simRTO<<min(p.retries, 20), simMaxRTO), p.retry)
		return
	}
	n, fin := p.lost, p.lostFin
	p.lost, p.lostFin, p.retrying = 0, false, false
	p.sock.arrive(n, fin)
}

// window returns how many bytes the peer has room for.
func (p *simPeer) window() int { return p.space - p.buffered }

// receive receives bytes of the server.
func (p *simPeer) receive(n int) {
	if p.appetite != 0 {
		p.buffered += n
	}
	if p.answers && p.sock.pings > p.answered {
		p.answered = p.sock.pings
		p.transmit(2, false)
	}
}

// eat reads some received bytes, which opens the window.
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

// openWindow sends a window update, and repeats it if the network loses it.
func (p *simPeer) openWindow() {
	p.w.after(p.delay, func() {
		switch {
		case p.sock.closed:
		case p.w.isLost():
			p.w.after(simRTO, p.openWindow)
		default:
			p.sock.push()
		}
	})
}

// serverClosed is called when the connection was closed on the side of the server.
func (p *simPeer) serverClosed() {
	if p.returns && p.w.now < p.w.horizon {
		p.w.after(p.w.upTo(p.interval), p.w.connect)
	}
}
