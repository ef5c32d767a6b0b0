package idle

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// A simWorld is a world with a Reaper on simulated event loops of gnet.
type simWorld struct {
	sim.World
	gnet.BuiltinEventEngine
	cfg    Config
	reaper *Reaper
	driver *driver
	sets   map[*watch.Settings]*sim.Settings
	soon   bool // an early round is planned
	loops  []*simLoop
	fds    []*simConn // connections by descriptor; the first ones are in use by others

	leaves, busyHandler bool
	slow                time.Duration
	greeting            int
}

// otherFDs is the number of descriptors that are in use by others.
const otherFDs = 8

func newSimWorld(seed uint64) *sim.World {
	w := &simWorld{fds: make([]*simConn, otherFDs)}
	return w.Build(seed, w, simTraits)
}

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

// Start makes the Reaper, with the clock, the kernel and the driver of the world, and its loops.
func (w *simWorld) Start() {
	w.Set.CopyTo(&w.cfg)
	w.cfg.OnIdle = sim.When(w.Decides, w.onIdle)
	w.cfg.Heartbeat.Ping = sim.When(w.cfg.Heartbeat.Interval > 0, w.ping)
	w.cfg.Goodbye = sim.When(w.cfg.MaxAgeGrace > 0, w.goodbye)
	checked, err := w.cfg.check(0, nil) // fills in the defaults
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.reaper = newReaper(w, checked, w.Elapsed, questions{w.ask, w.holdsOutput})
	w.Server, w.Monitor, w.Silences = w.reaper, &w.reaper.watch.Monitor, w.reaper.watch.Silences
	w.sets = make(map[*watch.Settings]*sim.Settings)
	w.reaper.startDriver = func(d *driver) {
		close(d.done)
		w.driver = d
		w.PlanRounds()
	}
	w.Adopt(&w.cfg)
	for range 1 + w.Rand.IntN(3) {
		w.loops = append(w.loops, &simLoop{Loop: w.NewLoop(), w: w, perPoll: 1 + w.Rand.IntN(128)})
	}
}

func (w *simWorld) Attach(l *sim.Life) {
	el := w.loops[w.Rand.IntN(len(w.loops))]
	l.Loop, l.Conn = el.Loop, &simConn{el: el, life: l}
}

// Accept registers a connection with its loop.
func (w *simWorld) Accept(l *sim.Life) {
	c := l.Conn.(*simConn)
	if c.fd = otherFDs + slices.Index(w.fds[otherFDs:], nil); c.fd < otherFDs {
		c.fd = len(w.fds)
		w.fds = append(w.fds, nil)
	}
	w.fds[c.fd] = c
	c.el.urgent = append(c.el.urgent, func() error { return c.el.open(c) })
	c.el.plan()
}

func (w *simWorld) Drives() bool { return w.driver != nil && w.driver == w.reaper.driver }

func (w *simWorld) Round() {
	w.reaper.round()
	w.soon = false
}

// Poll takes the place of the driver's wait for loops that need another round.
func (w *simWorld) Poll() {
	w.sets[w.reaper.watch.Settings()] = w.Set
	if !w.soon && w.Drives() && len(w.reaper.watch.Wakes) > 0 {
		<-w.reaper.watch.Wakes
		w.soon = true
		w.PlanRound(min(w.Now+pause, max(w.RoundDue, w.Now)))
	}
}

// Stopped lets the other threads run first after a stop, at times, unless a call holds a mutex, for
// which the only goroutine would wait forever.
func (w *simWorld) Stopped() {
	if w.InRound || w.reaper == nil || !w.One(2) {
		return
	}
	watcher := unsafe.Pointer(reflect.ValueOf(&w.reaper.watch).Elem().FieldByName("mu").UnsafeAddr())
	for _, mu := range []*sync.Mutex{&w.reaper.mu, (*sync.Mutex)(watcher)} {
		if !mu.TryLock() {
			return
		}
		mu.Unlock()
	}
	w.Sleep(0)
}

// ask answers a question of the Reaper about a descriptor.
func (w *simWorld) ask(fd int, ev *verdict.Evidence) {
	*ev = verdict.Evidence{Found: verdict.Ended, Queued: -1}
	if c := w.aboutToAsk(fd); c != nil {
		if l := w.reaper.registry.Load().find(c.el); l != nil {
			c.el.Set = w.sets[l.Set]
		}
		w.Answer(c.life, ev, true)
	}
}

// holdsOutput takes the place of kernel.HoldsOutput.
func (w *simWorld) holdsOutput(fd int) bool {
	c := w.aboutToAsk(fd)
	return c == nil || w.Family != sim.BSD && c.life.Sock.Queued > 0
}

// aboutToAsk returns the connection of a descriptor, before a question about it.
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

func (w *simWorld) Update(s sim.Settings) error {
	s.CopyTo(&w.cfg)
	return w.reaper.Update(to(w.cfg))
}

// Kick does the work of the task of Reaper.Kick, which itself would wait for the loop.
func (w *simWorld) Kick(l *sim.Life) {
	c := l.Conn.(*simConn)
	c.el.post(func() error {
		if !c.opened {
			return nil
		}
		l.KickedAt = cmp.Or(l.KickedAt, w.Now)
		var stop error
		if conn, ok := w.reaper.Conn(c); ok {
			conn.loop.halt(nil)
			conn.loop.Kick(conn.id, uint32(conn.state().Opened()))
			conn.loop.publish(conn.loop.clock.Stamp())
			stop = conn.loop.stop
		}
		if l.IsOpen {
			w.Violate(l, "Kick closes an open connection", "it does not")
		}
		return stop
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
	s := w.CheckCounts(true)
	w.Want("ClosedByPeer", s.ClosedByPeer, w.N["ended by the peer"])
	w.Want("Failed", s.Failed, w.N["failed"])
	w.Want("Entries", uint64(s.Entries), 0)
	w.Want("PendingOutput", uint64(s.PendingOutput), 0)
}
