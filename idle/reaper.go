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
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
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
	kernel      questions
	startDriver func(*driver) // starts drive in a goroutine; a simulation has its own

	watch    watch.Watcher
	crowd    crowd
	output   atomic.Int64 // bytes that wait for all connections, the sum of the loops' outputs
	registry atomic.Pointer[registry]

	warnings struct { // each is logged at most once a second, or once
		posting, crowded, keepalive, closing logging.Limiter
		foreign, undated                     sync.Once
	}

	mu     sync.Mutex     // guards the fields below and registry
	live   map[*loop]bool // loops with connections, so that gnet runs them and accepts tasks
	loops  uint32         // loops made so far
	driver *driver        // nil if there are no connections
	past   watch.Counters // of loops that are no longer in the registry

	shortest time.Duration // idle timeout of the round before
}

// Middleware returns a Reaper around next. The error joins all mistakes in the arguments, and names
// the field of each.
func Middleware(next gnet.EventHandler, cfg Config) (*Reaper, error) {
	checked, err := cfg.check(0, nil)
	if next == nil {
		err = errors.Join(errors.New("idle: the handler is nil: pass the gnet.EventHandler to wrap"), err)
	}
	if err != nil {
		return nil, err
	}
	return newReaper(next, checked, mono.Real(), realKernel), nil
}

// questions are the functions that query the kernel about a socket.
type questions struct {
	ask         func(fd int, ev *verdict.Evidence)
	holdsOutput func(fd int) bool
}

var realKernel = questions{kernel.Ask, kernel.HoldsOutput}

// newReaper returns a Reaper with a checked Config. A simulation passes its own clock and kernel.
func newReaper(next gnet.EventHandler, cfg watch.Config, elapsed func() mono.Time, ask questions) *Reaper {
	r := &Reaper{next: next, kernel: ask, live: make(map[*loop]bool)}
	r.watch.Init(&form, cfg, elapsed)
	r.crowd.watcher = &r.watch
	r.startDriver = func(d *driver) { go r.drive(d) }
	r.registry.Store(newRegistry(nil))
	return r
}

// Connections returns the number of open connections. Safe for concurrent use.
func (r *Reaper) Connections() int { return int(r.watch.Open.Load()) }

// Stats returns a snapshot of the counters over all engines. Safe for concurrent use.
func (r *Reaper) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.past
	for _, l := range r.registry.Load().loops {
		all.Add(l.published.read())
	}
	all.PendingOutput = int(r.output.Load())
	return r.watch.Stats(&all, r.driver != nil)
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
	if !l.hasRoom(r.post) {
		l.refuse(c)
		return nil, gnet.Close
	}
	entered := r.watch.Clock.Stamp()
	r.add(l, own)
	if record, _, s := l.find(own); record != nil {
		l.layers.set(s, c)
	}
	out, action := r.next.OnOpen(c)
	l.noteStall(entered, r.watch.Clock.Stamp())
	// A slow OnOpen does not count against the peer.
	if record, id, s := l.find(own); record != nil {
		record.Heard = r.watch.Clock.Stamp().Short()
		s.State.Open(l.clock, l.LimitsOf(s).Rate, r.watch.Clock.Elapsed())
		if l.outputs.areLimited(own) {
			action = marker{l}.checkReturned(own, 0, action)
			if open, _, _ := l.find(own); open == nil { // OnWritable has closed it
				out = nil
			}
		}
		if len(out) > 0 { // gnet writes it after the call
			marker{l}.expectOutput(id)
		}
	}
	return out, action
}

// add starts to watch one of gnet's own connections.
func (r *Reaper) add(l *loop, c gnet.Conn) {
	if l.Open == conntable.Max {
		r.watch.Warn(&r.warnings.crowded, "too many connections of one event loop: one more is not watched", "limit", conntable.Max)
		r.watch.Open.Add(-1)
		return
	}
	if l.Open == 0 {
		l.follow()
	}
	kernel.NoteOpened(c.Fd())
	now, stamp := l.clock.Elapsed(), l.clock.Stamp()
	id, s := l.Take(now)
	s.Front = c
	if old, replaced := l.table.Insert(key(c), id, stamp.Short()); replaced {
		l.Counters.CountEnd(nil)
		l.drop(old, l.At(old))
	}
	l.File(id, s, now)
	l.plan()
	l.publish(stamp)
}

// OnTraffic forwards, and records whether the peer has sent something.
func (r *Reaper) OnTraffic(c gnet.Conn) gnet.Action {
	l := r.registry.Load().find(c.EventLoop())
	if l == nil {
		return r.next.OnTraffic(c)
	}
	entered := r.watch.Clock.Stamp()
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
	if heard {
		l.endSilence(own, record, entered)
		if l.isPong != nil {
			pong = l.isPong(c)
			if record, _ = l.table.Find(key(own)); record == nil { // IsPong has closed it
				l.countLastRead(heard)
				return gnet.None
			}
		}
	}
	waited := l.outputs.of(own)
	action := r.next.OnTraffic(c)
	now := r.watch.Clock.Stamp()
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
			_, _, s := l.find(own)
			s.Alive(l.clock)
		}
		l.Counters.Reads++
		if now != mono.Stamp(l.heardAt.Load()) {
			l.noteHeard(now)
			l.publish(now)
		}
	}
	l.noteLeftover(record, own, c.InboundBuffered())
	if l.outputs.areLimited(own) {
		action = marker{l}.checkReturned(own, waited, action)
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
	if record == nil || !isOf(l.At(id), own) {
		if l.refused.remove(descriptor(own)) { // the handler has not seen it
			r.retireIfEmpty(l)
			return gnet.None
		}
		return r.next.OnClose(c, err)
	}
	if reason := l.remove(id, err); reason != nil {
		err = reason
	}
	r.retireIfEmpty(l)
	entered := r.watch.Clock.Stamp()
	action := r.next.OnClose(c, err)
	l.noteStall(entered, r.watch.Clock.Stamp())
	return action
}

// remove stops watching a connection. It returns the reason if the Reaper has closed the
// connection, and nil otherwise. The error is gnet's.
func (l *loop) remove(id uint32, err error) (reason *ReapError) {
	s := l.At(id)
	if e := l.Ends.Of(id); e != nil {
		reason = e.Reason
	}
	if l.closing.conn == s {
		reason, l.closing = l.closing.reason, closing{}
	}
	if reason != nil {
		l.CountReap(id, s, reason)
	} else if l.Counters.CountEnd(err); err != nil {
		l.CountLastSilence(id, s, false)
	}
	l.table.Remove(key(s.Front))
	l.drop(id, s)
	if l.Open == 0 { // no task runs until the next connection opens
		l.Counters.LoopDelay = 0
	}
	l.publish(l.clock.Stamp())
	return reason
}
