package sim

import "time"

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

// newPeer returns a peer by chance.
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
			if !p.w.isLost() {
				p.sock.reset()
			}
		})
	}
}

func (p *Peer) isGone() bool { return p.vanished || p.sock.Closed }

// Send sends bytes.
func (p *Peer) Send(n int) { p.transmit(n, false) }

// transmit sends bytes. Bytes after a lost packet wait for its retransmission.
func (p *Peer) transmit(n int, fin bool) {
	p.w.After(p.delay, func() {
		if !p.retrying && !p.w.isLost() {
			p.sock.arrive(n, fin)
			return
		}
		p.lost += n
		p.lostFin = p.lostFin || fin
		if !p.retrying {
			p.retrying, p.retries = true, 0
			p.w.After(rto, p.retry)
		}
	})
}

// retry retransmits with exponential back-off.
func (p *Peer) retry() {
	if p.isGone() {
		return
	}
	if p.w.isLost() {
		p.retries++
		p.w.After(min(rto<<min(p.retries, 20), maxRTO), p.retry)
		return
	}
	n, fin := p.lost, p.lostFin
	p.lost, p.lostFin, p.retrying = 0, false, false
	p.sock.arrive(n, fin)
}

func (p *Peer) receive(n int) {
	if p.appetite != 0 {
		p.buffered += n
	}
	if p.answers && p.sock.pings > p.answered {
		p.answered = p.sock.pings
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
		case p.w.isLost():
			p.w.After(rto, p.openWindow)
		default:
			p.sock.push()
		}
	})
}
