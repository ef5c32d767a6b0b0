package idle

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/ratelog"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

var _ gnet.EventHandler = (*Reaper)(nil)

// A Reaper is the gnet.EventHandler around yours. It forwards every call and every Action, hands out gnet's own
// connections, and closes those that are idle. Make one with [Middleware] and give it to gnet.Run or gnet.NewClient; one
// Reaper may serve several engines and clients, one after the other or at the same time.
//
// The methods of gnet.EventHandler are for gnet to call. Stats is safe for concurrent use.
type Reaper struct {
	// Immutable.
	next        gnet.EventHandler
	clock       coarse.Clock
	kernel      questions
	startDriver func(*driver) // starts drive, but in a simulation
	more        chan struct{} // a loop could not finish within one task, or the settings have changed
	taskTime    time.Duration

	warnings      warnings
	foreign       atomic.Pointer[string] // a type of connections that cannot be looked into
	undated       atomic.Bool            // a kernel has not dated bytes
	warnedUndated sync.Once              // that it did not
	warnedForeign sync.Once              // that type
	own           ownTimeouts            // of SetTimeouts
	monitor       outage.Monitor
	total         atomic.Int64 // connections
	shedding      atomic.Int64 // of them, those that loops are about to shed
	spared        atomic.Int64 // of them, those that are closed already but for gnet or ObserveOnly
	registry      atomic.Pointer[registry]
	settings      atomic.Pointer[settings]

	mu         sync.Mutex // guards what follows, changes of registry and settings, and moves of the clock
	live       int        // loops with connections
	loops      uint32     // made so far
	driver     *driver    // nil if there are none
	lag        lag        // of the driver
	updates    uint64     // of the Config
	past       counters   // of loops that are no longer in the registry
	pastClosed []Closed   // what they have reaped last
}

// Middleware returns a Reaper around next. The error joins all that is wrong with the arguments, and
// names the field of each.
func Middleware(next gnet.EventHandler, cfg Config) (*Reaper, error) {
	cfg, err := cfg.check(0)
	if next == nil {
		err = errors.Join(errors.New("idle: the handler is nil: pass the gnet.EventHandler to wrap"), err)
	}
	if err != nil {
		return nil, err
	}
	return newReaper(next, cfg, coarse.Real(), realKernel), nil
}

// questions are what the kernel is asked about a socket.
type questions struct {
	ask         func(fd int, ev *verdict.Evidence)
	holdsOutput func(fd int) bool
}

var realKernel = questions{kernel.Ask, kernel.HoldsOutput}

// newReaper returns a Reaper with a Config that was checked. A simulation has a clock and a kernel of
// its own.
func newReaper(next gnet.EventHandler, cfg Config, elapsed func() time.Duration, ask questions) *Reaper {
	r := &Reaper{next: next, more: make(chan struct{}, 1), taskTime: taskTime, kernel: ask}
	r.clock.Init(cfg.Tick, cfg.clockMemory(), elapsed)
	r.monitor.Init(elapsed())
	r.startDriver = func(d *driver) { go r.drive(d) }
	r.settings.Store(newSettings(cfg, 1, overlay{}))
	r.registry.Store(newRegistry(nil))
	return r
}

// Stats returns a snapshot of the counters over all engines. Safe for concurrent use.
func (r *Reaper) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.past
	for _, l := range r.registry.Load().loops {
		all.add(l.published.read())
	}
	s := all.export()
	s.Updates = r.updates
	s.DriverLag = r.lag.worst(r.clock.Elapsed(), r.driver != nil)
	s.Outages, s.OutageTime, s.Holds = r.monitor.Outages, r.monitor.Time, r.monitor.Holds
	s.Holding = r.driver != nil && r.monitor.State().Held()
	return s
}

// OnBoot forwards to the wrapped handler.
func (r *Reaper) OnBoot(eng gnet.Engine) gnet.Action { return r.next.OnBoot(eng) }

// OnShutdown forwards to the wrapped handler.
func (r *Reaper) OnShutdown(eng gnet.Engine) { r.next.OnShutdown(eng) }

// OnTick forwards to the wrapped handler: it is the user's own ticker, which the Reaper does not need.
func (r *Reaper) OnTick() (time.Duration, gnet.Action) { return r.next.OnTick() }

// OnOpen begins to watch the connection, and forwards.
func (r *Reaper) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if _, datagrams := c.LocalAddr().(*net.UDPAddr); datagrams { // the UDP conn of a client: no connection to lose
		return r.next.OnOpen(c)
	}
	l := r.join(c)
	own := inner(c)
	if !r.admit(l) {
		l.refuse(c)
		return nil, gnet.Close
	}
	entered := r.clock.Stamp()
	l.add(own)
	if record, id := l.table.Find(key(own)); record != nil {
		l.setOuter(l.states.At(id), c)
	}
	if keepAlive := l.set.cfg.TCPKeepAlive; keepAlive > 0 {
		l.setTCPKeepAlive(own, keepAlive)
	}
	out, action := r.next.OnOpen(c)
	l.noteStall(entered)
	if record, id := l.table.Find(key(own)); record != nil { // a slow OnOpen does not count against the peer
		record.Heard = uint32(r.clock.Stamp())
		s := l.states.At(id)
		s.instants[atOpened] = l.clock.PackNow()
		if rate := l.set.limits.Rate; rate.Always {
			s.instants[atRated] = l.packAfter(rate.Grace)
		}
		if l.hard > 0 && own.OutboundBuffered() > l.hard {
			l.overflow(own)
		}
	}
	return out, action
}

// OnTraffic forwards, and takes note if the peer has sent something.
func (r *Reaper) OnTraffic(c gnet.Conn) gnet.Action {
	l := r.registry.Load().find(c.EventLoop())
	if l == nil {
		return r.next.OnTraffic(c)
	}
	entered := r.clock.Stamp()
	own, record := c, l.table.AtHome(descriptor(c))
	tag := tagOf(c)
	if !record.Is(tag) {
		if own, record, _ = l.seek(c); record == nil {
			return r.next.OnTraffic(c)
		}
		tag = tagOf(own)
	}
	// Conn.Wake calls OnTraffic as well, with nothing new: what is there is what was left there.
	buffered := c.InboundBuffered()
	heard := buffered > 0
	if record.Has(conntable.Leftover | conntable.Fresh) {
		heard = l.isHeard(record, own, buffered)
	}
	pong := false
	if heard && l.isPong != nil {
		pong = l.isPong(c)
		if record, _ = l.table.Find(key(own)); record == nil { // it has closed it
			l.countLastRead(heard)
			return gnet.None
		}
	}
	action := r.next.OnTraffic(c)
	now := r.clock.Stamp()
	if now-entered >= stallMoves {
		l.noteStall(entered)
	}
	if !record.Is(tag) { // the handler has closed it, as a failing Write does, or another one, and records moved
		if record, _ = l.table.Find(key(own)); record == nil {
			l.countLastRead(heard)
			return action
		}
	}
	if heard {
		// The heartbeat: the deadline in the wheel stays, and is moved when it comes up. Stamped now, not before, so that
		// a slow handler does not idle out its own connection.
		record.Heard = uint32(now)
		if pong {
			l.ponged(own)
		}
		l.counters.Reads++
		if now != l.heardAt.Load() {
			l.noteHeard(now)
			l.publish(now)
		}
	}
	if buffered = c.InboundBuffered(); buffered != 0 || record.Has(conntable.Leftover) {
		l.noteLeftover(own, buffered)
	}
	if l.hard > 0 && own.OutboundBuffered() > l.hard {
		l.overflow(own)
	}
	return action
}

// OnClose stops watching the connection, and forwards with the reason if the Reaper has closed it.
func (r *Reaper) OnClose(c gnet.Conn, err error) gnet.Action {
	l := r.registry.Load().find(c.EventLoop())
	if l == nil {
		return r.next.OnClose(c, err)
	}
	own, record, id := l.seek(c)
	if record == nil || !l.states.At(id).is(own) {
		if l.wasRefused(own) { // the handler was not told of its beginning
			l.retireIfEmpty()
			return gnet.None
		}
		return r.next.OnClose(c, err)
	}
	if reason := l.remove(id, err); reason != nil {
		err = reason
	}
	l.retireIfEmpty()
	entered := r.clock.Stamp()
	action := r.next.OnClose(c, err)
	l.noteStall(entered)
	return action
}

// warnings limit each warning of a Reaper to one a second.
type warnings struct {
	posting, crowded, keepalive, closing, hold, outage ratelog.Limiter
}

// warn logs a warning, unless it was logged less than a second ago.
func (r *Reaper) warn(w *ratelog.Limiter, text string, args ...any) {
	if w.AllowAt(r.clock.Elapsed()) {
		r.settings.Load().cfg.Logger.Warn(text, args...)
	}
}
