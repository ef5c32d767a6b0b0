package idle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
)

// simTraits are those of a Reaper.
var simTraits = sim.Traits{
	Package: "idle", Late: 4 * time.Millisecond, LatePer: 40 * time.Microsecond, Loops: true,
	Counts: []string{"closed for Total", "ended by the peer", "failed", "timer calls", "refused tasks", "marks passed"},
	Never:  []string{reap.HalfClosed.Error()},
	Seeds: []uint64{
		1795332955799069900, // an outage ended while a task ran
		1795332951452096579, // a postponed deadline was filed too late
		1795333034770829956, // the first byte of a window was not counted
		1795333031468372096, // the process was stopped after a question to the kernel
		1795332939211283488, // judged as of an instant after the question
		1795332942455382037, // a slow OnOpen counted against MinRate.Always
		1795332907774925648, // a new connection was filed under the wrong deadline
		1795332904830259470, // calls put off the checks of output
		1795332901501352670, // shed a moment too early
		1795332957011509084, // a gap in a silence counted twice
		1795333658262713065, // a gap that began in a silence counted once more
		1795332986064435312, // the stalls of a busy loop grew together
		1795343072957401851, // bytes were sent while the process was stopped before OnIdle
		1795343667810281423, // shed although other loops had closed enough connections meanwhile
		1795344696179013125, // a question took six seconds and missed a retransmission
		1795333305167975915, // a sweep did not know how long its question took
		1795333471537849852, // a write shortened the grace of all idle
		1795334056672576074, // a stop did not count after a blocked loop
		1795334291948310052, // a silence was taken for a tick shorter than it was
		202611220000072053,  // a byte too many was asked of a message, by rounding
		1795352185104296175, // the grace of an outage went on during the next one
		1795350889004700497, // a Touch in a slow OnOpen was taken for the last write
		1795374754450293586, // a check found less output than the total, and a connection was closed
		1795374857474689703, // the process was stopped between such a check and the close
		7000000000000202958, // sweeps in each tick made a loop quiet, and the next one came late
		1795709629465993653, // OnIdle was slow, and the handshake timed out in it
		1795709423267700445, // OnWritable wrote a large answer
		1795709521415491069, // OnWritable wrote more than Total in OnTraffic
		715607,              // two Updates came while a task began
	},
}

// TestSimulation runs the code of this package in simulated worlds, see [sim.Run].
func TestSimulation(t *testing.T) { sim.Run(t, simTraits, newSimWorld) }

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
	w.setMarks()
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

// Connect registers a connection with its loop.
func (w *simWorld) Connect(l *sim.Life) {
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
	c.inTask(func() {
		l.KickedAt = cmp.Or(l.KickedAt, w.Now)
		if conn, ok := w.reaper.Conn(c); ok {
			kick(conn.loop, conn.id, conn.state())
		}
		if l.IsOpen {
			w.Violate(l, "Kick closes an open connection", "it does not")
		}
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

// The methods below are the handler of a user: it makes every call that a user may make, at random.

func (w *simWorld) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	conn := c.(*simConn)
	life := conn.life
	conn.wasOpened = true
	life.Open()
	if w.Set.HandshakeTimeout > 0 && w.One(4) {
		life.Ready()
	}
	w.setTimers(conn)
	action := w.mischief(conn)
	life.OpenedFrom = w.Now
	if w.greeting > 0 && conn.opened {
		return make([]byte, w.greeting), action
	}
	return nil, action
}

func (w *simWorld) OnTraffic(c gnet.Conn) gnet.Action {
	conn := c.(*simConn)
	life := conn.life
	if conn.current > 0 { // otherwise this is a Wake
		defer life.Returning()
	}
	w.Trace(life, "OnTraffic")
	n := conn.InboundBuffered()
	if w.leaves && w.One(3) {
		n = w.Rand.IntN(n + 1)
	}
	fromInbound := min(n, conn.inbound)
	conn.inbound -= fromInbound
	conn.current -= n - fromInbound
	conn.messages++
	if conn.messages == 2 && w.Set.HandshakeTimeout > 0 {
		life.Ready()
	}
	if w.Reply > 0 && w.One(2) {
		_ = conn.write(1 + w.Rand.IntN(w.Reply))
	}
	if !conn.opened {
		return gnet.None
	}
	return w.mischief(conn)
}

func (w *simWorld) OnClose(c gnet.Conn, err error) gnet.Action {
	conn := c.(*simConn)
	var reason *ReapError
	w.Trace(conn.life, "OnClose", err)
	conn.life.Check()
	switch isReaped := errors.As(err, &reason); {
	case isReaped:
		conn.life.Reap(reason)
	case errors.Is(err, io.EOF):
		w.N["ended by the peer"]++
	case err != nil:
		w.N["failed"]++
	}
	conn.life.Closed()
	if w.slow > 0 && w.One(64) {
		conn.el.Stall(w.UpTo(w.slow))
	}
	if reason == nil && w.One(8) {
		w.touchOther(conn)
	}
	return gnet.None
}

func (w *simWorld) onIdle(c gnet.Conn, ev Event) gnet.Action {
	conn := c.(*simConn)
	action := gnet.Close
	if ev.Reason == reap.WriteIdle && !w.Changes || conn.life.Keeps || w.One(4) {
		action = gnet.None
	}
	conn.life.Idle(ev, action == gnet.Close)
	switch {
	case w.One(8):
		_ = conn.write(w.Rand.IntN(100) + 1)
	case w.One(16):
		w.mischief(conn)
	}
	return action
}

func (w *simWorld) ping(c gnet.Conn) []byte {
	l := c.(*simConn).life
	l.Pinged(l.Judged, true)
	return []byte("ping")
}

func (w *simWorld) goodbye(c gnet.Conn, reason *ReapError) []byte {
	c.(*simConn).life.Goodbye(reason)
	return []byte("bye")
}

// mischief sometimes makes one of the calls that a handler may make.
func (w *simWorld) mischief(c *simConn) gnet.Action {
	life := c.life
	if w.slow > 0 && w.One(100) {
		w.Trace(life, "handler is slow")
		c.el.Stall(w.UpTo(w.slow))
	}
	if !w.busyHandler || !w.One(6) || !c.opened {
		return gnet.None
	}
	what := w.Rand.IntN(16)
	w.Trace(life, "mischief", what)
	switch what {
	case 0:
		return gnet.Close
	case 1:
		_ = c.Close()
	case 2:
		_ = c.el.Close(c)
	case 3:
		_ = c.el.Close(w.other(c))
	case 4, 5:
		life.Hold()
		w.later(c, life.Release)
	case 6:
		w.exempt(c, !life.IsExempt())
	case 7, 8:
		w.setTimeouts(c)
	case 9:
		life.Touch()
	case 10, 11:
		life.Message(true)
	case 12:
		life.Message(false)
	case 13:
		_ = c.Wake(nil)
	case 14:
		w.Kick(w.other(c).life)
	case 15:
		w.touchOther(c)
	}
	return gnet.None
}

func (w *simWorld) other(c *simConn) *simConn { return c.el.order[w.Rand.IntN(len(c.el.order))] }

// touchOther writes to another connection, which may fail and close it.
func (w *simWorld) touchOther(c *simConn) {
	if len(c.el.order) > 0 {
		_ = w.other(c).write(1 + w.Rand.IntN(50))
	}
}

// later makes a call for a connection in a task, some time later.
func (w *simWorld) later(c *simConn, do func()) {
	w.After(w.UpTo(2*time.Second), func() { c.inTask(do) })
}

func (w *simWorld) exempt(c *simConn, on bool) {
	c.mark.exempt = c.mark.exempt || on
	c.life.Exempt(on)
	if c.mark.exempt = on; on {
		w.later(c, func() {
			if c.life.IsExempt() {
				w.exempt(c, false)
			}
		})
	}
}

func (w *simWorld) setTimeouts(c *simConn) {
	var t sim.Timeouts
	for k, d := range []time.Duration{w.Set.ReadTimeout, w.Set.WriteTimeout, w.Set.AllTimeout} {
		if d > 0 {
			t[k] = w.Limit()
		}
	}
	if err := handle(w.reaper, c).SetTimeouts(Timeouts{Read: t[0], Write: t[1], All: t[2]}); err == nil {
		c.life.SetTimeouts(t)
	}
}

// A simTimer is the knowledge of the oracle about one After or Every of a connection.
type simTimer struct {
	earliest time.Duration // of the next call
	latest   time.Duration // it is due then at the latest; a call for it may stand for earlier ones
	every    time.Duration
	vague    time.Duration // the call that set the timer took so long
	ended    bool          // it was called, or stopped
	stop     func() bool
}

// setTimers sets timers of a connection in a quarter of the worlds.
func (w *simWorld) setTimers(c *simConn) {
	if w.Seed%4 != 0 || !w.One(2) {
		return
	}
	for range 1 + w.Rand.IntN(3) {
		d := w.UpTo(w.Longest)
		t := &simTimer{earliest: w.Now + d}
		set := handle(w.reaper, c).After
		if w.One(2) {
			t.every, set = d, handle(w.reaper, c).Every
		}
		t.stop = set(d, func(gnet.Conn) { w.timer(c, t) })
		t.latest = w.Now + d
		t.vague = t.latest - t.earliest
		c.timers = append(c.timers, t)
	}
}

func (w *simWorld) timer(c *simConn, t *simTimer) {
	life := c.life
	w.N["timer calls"]++
	w.Trace(life, "timer", t.earliest, t.every)
	switch {
	case !life.IsOpen:
		w.Violate(life, "no timer is called after OnClose", "a timer is called")
	case t.ended:
		w.Violate(life, "no timer is called after its end", "it is called again")
	case w.Now < t.earliest:
		w.Violate(life, fmt.Sprintf("no timer is called before %v", t.earliest), "it is called at %v", w.Now)
	}
	life.CheckDue("a timer is called", t.latest)
	if t.ended = t.every == 0; !t.ended {
		t.earliest += t.every
		t.latest += t.every * (1 + max(w.Now-t.latest+t.vague, 0)/t.every)
	}
	switch {
	case w.One(8):
		_ = c.Close()
	case w.One(8) && t.every > 0:
		w.stopTimer(life, t)
	case w.One(8) && len(c.timers) > 0:
		w.stopTimer(life, c.timers[w.Rand.IntN(len(c.timers))])
	case w.One(16) && w.slow > 0:
		w.Sleep(w.UpTo(w.slow))
	}
}

func (w *simWorld) stopTimer(l *sim.Life, t *simTimer) {
	if stopped := t.stop(); stopped == t.ended && l.IsOpen {
		w.Violate(l, fmt.Sprintf("stop returns %v", !t.ended), "it returns %v", stopped)
	}
	t.ended = true
}
