package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
)

// A simWorld is a world with a Reaper on simulated event loops of gnet.
type simWorld struct {
	sim.World
	cfg    Config
	reaper *Reaper
	simInside
	soon  bool // an early round is planned
	loops []*simLoop
	fds   []*simConn // connections by descriptor; the first ones are in use by others

	leaves, busyHandler bool
	slow                time.Duration
	greeting            int
}

// otherFDs is the number of descriptors that are in use by others.
const otherFDs = 8

// newSimWorld builds the world of a seed.
func newSimWorld(seed uint64) sim.Front {
	w := &simWorld{fds: make([]*simConn, otherFDs)}
	w.Build(seed, w, simTraits)
	return w
}

// Choose chooses the behaviour of the handler.
func (w *simWorld) Choose() {
	w.leaves, w.busyHandler = w.One(4), w.One(2)
	if w.One(3) {
		w.slow = w.Skewed(time.Millisecond, 2*w.Longest)
	}
	w.ChooseReply()
	if w.One(8) {
		w.greeting = 1 + w.Rand.IntN(100000)
	}
}

// Start makes the Reaper and its loops.
func (w *simWorld) Start() {
	h := &simHandler{w: w}
	w.Set.CopyTo(&w.cfg)
	if w.Decides {
		w.cfg.OnIdle = h.onIdle
	}
	if w.cfg.Heartbeat.Interval > 0 {
		w.cfg.Heartbeat.Ping = h.ping
	}
	if w.cfg.MaxAgeGrace > 0 {
		w.cfg.Goodbye = h.goodbye
	}
	w.makeReaper(h, &w.cfg)
	w.Adopt(&w.cfg)
	for range 1 + w.Rand.IntN(3) {
		w.loops = append(w.loops, &simLoop{Loop: w.NewLoop(), w: w, perPoll: 1 + w.Rand.IntN(128)})
	}
}

// Attach gives a connection a loop.
func (w *simWorld) Attach(l *sim.Life) {
	el := w.loops[w.Rand.IntN(len(w.loops))]
	l.Loop, l.Conn = el.Loop, &simConn{el: el, life: l}
}

// Accept registers a connection with its loop.
func (w *simWorld) Accept(l *sim.Life) {
	c := l.Conn.(*simConn)
	for c.fd = otherFDs; c.fd < len(w.fds) && w.fds[c.fd] != nil; {
		c.fd++
	}
	if c.fd == len(w.fds) {
		w.fds = append(w.fds, nil)
	}
	w.fds[c.fd] = c
	c.el.urgent = append(c.el.urgent, func() error { return c.el.open(c) })
	c.el.plan()
}

// holdsOutput takes the place of kernel.HoldsOutput.
func (w *simWorld) holdsOutput(fd int) bool {
	c := w.aboutToAsk(fd)
	return c == nil || w.Family != sim.BSD && c.life.Sock.Outstanding() > 0
}

// aboutToAsk returns the connection of a descriptor. The process may be stopped before the
// question.
func (w *simWorld) aboutToAsk(fd int) *simConn {
	c := w.fds[fd]
	if c != nil {
		w.AboutToAsk(c.life)
	}
	if c == nil || c != w.fds[fd] || !c.isKnown {
		w.Violate(nil, "only open descriptors are asked about", "descriptor %d is closed", fd)
		return nil
	}
	return c
}

// Disturb plans a task that blocks a loop.
func (w *simWorld) Disturb(at time.Duration) {
	el := w.loops[w.Rand.IntN(len(w.loops))]
	w.Later(at, func() {
		el.post(func() error { w.Trace(nil, "a loop is blocked"); w.Sleep(w.UpTo(w.Longest)); return nil })
	})
}

// Update replaces the settings of the Reaper.
func (w *simWorld) Update(s sim.Settings) error {
	s.CopyTo(&w.cfg)
	return w.reaper.Update(to(w.cfg))
}

// Kick closes a connection in a task.
func (w *simWorld) Kick(l *sim.Life) {
	c := l.Conn.(*simConn)
	c.el.post(func() error {
		if !c.opened {
			return nil
		}
		if l.KickedAt == 0 {
			l.KickedAt = w.Now
		}
		err := w.kickNow(c)
		if l.IsOpen {
			w.Violate(l, "Kick closes an open connection", "it does not")
		}
		return err
	})
}

// Finish closes all connections, as gnet does when an engine stops.
func (w *simWorld) Finish() {
	w.slow = 0
	for _, el := range w.loops {
		el.Running = true
		for len(el.order) > 0 && !w.Failed() {
			_ = el.close(el.order[0], nil)
		}
		el.Running = false
	}
	if w.Failed() {
		return
	}
	s := w.CheckCounts(true)
	w.Want("ClosedByPeer", s.ClosedByPeer, w.N["ended by the peer"])
	w.Want("Failed", s.Failed, w.N["failed"])
	w.Want("Entries", uint64(s.Entries), 0)
	w.Want("PendingOutput", uint64(s.PendingOutput), 0)
}
