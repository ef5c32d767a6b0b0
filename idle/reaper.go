package idle

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

var (
	_ gnet.EventHandler = (*Reaper)(nil)
	_ reap.Reaper       = (*Reaper)(nil)
)

// A Reaper is a gnet.EventHandler around yours. It forwards every call and every Action, hands out
// gnet's own connections, and closes idle connections. [Middleware] makes one, for gnet.Run or
// gnet.NewClient. One Reaper may serve several engines and clients, in turn or at the same time.
//
// Only gnet calls the methods of gnet.EventHandler.
type Reaper struct {
	// Immutable.
	next        gnet.EventHandler
	clock       mono.Clock
	kernel      questions
	startDriver func(*driver) // starts drive in a goroutine; a simulation has its own
	more        chan struct{} // a loop needs another task, or the settings have changed
	taskTime    time.Duration

	warnings      warnings
	foreign       atomic.Pointer[string] // a type of connection that hides gnet's own
	undated       atomic.Bool            // the kernel does not date bytes
	warnedUndated sync.Once              // the warning about undated was logged
	warnedForeign sync.Once              // the warning about foreign was logged
	own           ownTimeouts            // of SetTimeouts
	monitor       outage.Monitor
	total         atomic.Int64 // open connections
	shedding      atomic.Int64 // of total, connections that a loop is about to shed
	decided       atomic.Int64 // of total, connections that gnet will close, or ObserveOnly keeps
	output        atomic.Int64 // bytes that wait for all connections, the sum of the loops' outputs
	registry      atomic.Pointer[registry]
	settings      atomic.Pointer[settings]

	mu         sync.Mutex // guards the fields below, registry, settings and moves of the clock
	live       int        // loops with connections
	loops      uint32     // loops made so far
	driver     *driver    // nil if there are no connections
	lag        lag        // of the driver
	updates    uint64     // of the Config
	past       counters   // of loops that are no longer in the registry
	pastClosed []Closed   // the connections that these loops reaped last
}

// Middleware returns a Reaper around next. The error joins all mistakes in the arguments, and names
// the field of each.
func Middleware(next gnet.EventHandler, cfg Config) (*Reaper, error) {
	cfg, err := cfg.check(0)
	if next == nil {
		err = errors.Join(errors.New("idle: the handler is nil: pass the gnet.EventHandler to wrap"), err)
	}
	if err != nil {
		return nil, err
	}
	return newReaper(next, cfg, mono.Real(), realKernel), nil
}

// questions are the functions that query the kernel about a socket.
type questions struct {
	ask         func(fd int, ev *verdict.Evidence)
	holdsOutput func(fd int) bool
}

var realKernel = questions{kernel.Ask, kernel.HoldsOutput}

// newReaper returns a Reaper with a checked Config. A simulation passes its own clock and kernel.
func newReaper(next gnet.EventHandler, cfg Config, elapsed func() mono.Time, ask questions) *Reaper {
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
		all.Add(l.published.read())
	}
	s := all.Export()
	s.Updates, s.PendingOutput = r.updates, int(r.output.Load())
	s.DriverLag = r.lag.worst(r.clock.Elapsed(), r.driver != nil)
	s.Outages, s.OutageTime, s.Holds = r.monitor.Outages, r.monitor.Time, r.monitor.Holds
	s.Holding = r.driver != nil && r.monitor.State().Held()
	return s
}

// OnBoot forwards to the wrapped handler.
func (r *Reaper) OnBoot(eng gnet.Engine) gnet.Action { return r.next.OnBoot(eng) }

// OnShutdown forwards to the wrapped handler.
func (r *Reaper) OnShutdown(eng gnet.Engine) { r.next.OnShutdown(eng) }

// OnTick forwards to the wrapped handler: the ticker belongs to the user.
func (r *Reaper) OnTick() (time.Duration, gnet.Action) { return r.next.OnTick() }

// OnOpen starts to watch the connection, and forwards.
func (r *Reaper) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if _, datagrams := c.LocalAddr().(*net.UDPAddr); datagrams { // the socket of a UDP client
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
	l.noteStall(entered, r.clock.Stamp())
	// A slow OnOpen does not count against the peer.
	if record, id := l.table.Find(key(own)); record != nil {
		record.Heard = r.clock.Stamp().Short()
		l.states.At(id).Open(l.clock, l.set.limits.Rate, r.clock.Elapsed())
		if l.hasLimitedOutput(own) {
			action = l.checkOutput(own, action)
		}
	}
	return out, action
}

// OnTraffic forwards, and records whether the peer has sent something.
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
	// Conn.Wake calls OnTraffic too, without new bytes. Then the buffer holds only leftover bytes.
	buffered := c.InboundBuffered()
	heard := buffered > 0
	if record.Has(conntable.Leftover | conntable.Fresh) {
		heard = l.isHeard(record, own, buffered)
	}
	pong := false
	if heard && l.isPong != nil {
		pong = l.isPong(c)
		if record, _ = l.table.Find(key(own)); record == nil { // IsPong has closed it
			l.countLastRead(heard)
			return gnet.None
		}
	}
	action := r.next.OnTraffic(c)
	now := r.clock.Stamp()
	l.noteStall(entered, now)
	// The handler may have closed this connection, or another one, so that the records moved. A
	// failing Write closes the connection.
	if !record.Is(tag) {
		if record, _ = l.table.Find(key(own)); record == nil {
			l.countLastRead(heard)
			return action
		}
	}
	if heard {
		// The heartbeat. The deadline in the wheel stays, and is moved when its slot comes up. The
		// stamp is that of the end, so that a slow handler does not make its own connection idle.
		record.Heard = now.Short()
		if pong {
			l.notePong(own)
		}
		l.counters.Reads++
		if now != mono.Stamp(l.heardAt.Load()) {
			l.noteHeard(now)
			l.publish(now)
		}
	}
	l.noteLeftover(record, own, c.InboundBuffered())
	if l.hasLimitedOutput(own) {
		action = l.checkOutput(own, action)
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
		if l.wasRefused(own) { // the handler has not seen it
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
	l.noteStall(entered, r.clock.Stamp())
	return action
}

// warnings limit each warning of a Reaper to one per second.
type warnings struct {
	posting, crowded, keepalive, closing, hold, outage logging.Limiter
}

// warn logs a warning, unless the same one was logged less than a second ago.
func (r *Reaper) warn(w *logging.Limiter, text string, args ...any) {
	if w.AllowAt(r.clock.Elapsed()) {
		r.settings.Load().cfg.Logger.Warn(text, args...)
	}
}
