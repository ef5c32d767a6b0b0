package idlenet

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// ErrNotWatched is returned for a connection that the Listener does not watch: it is closed, or was
// neither accepted nor passed to [Listener.Watch].
var ErrNotWatched = reap.ErrNotWatched

var (
	_ net.Listener = (*Listener)(nil)
	_ reap.Reaper  = (*Listener)(nil)
)

// A Listener is a net.Listener that watches the connections that it accepts. [Listen] makes one.
// Its methods are safe for concurrent use.
//
// Arguments that are a net.Conn may be the connection that Accept has returned, or one around it
// that has a method NetConn, such as a *tls.Conn.
type Listener struct {
	// Immutable.
	inner   net.Listener
	rate    *rate.Limiter // of all new connections
	sources *sourcelimit.Sources
	clock   mono.Clock
	ask     ask
	shards  []*shard
	run     func()       // runs the judge on a goroutine
	spawn   func(func()) // makes a call on a goroutine of its own

	settings atomic.Pointer[settings]
	stamped  atomic.Int64 // the stamp at which a Read of a stamped connection returned last
	total    atomic.Int64 // connections that are not known to be closed
	ending   atomic.Int64 // of total, connections that have ended
	refused  atomic.Uint64
	searched atomic.Int64 // the instant of the last searchAll
	closing  atomic.Bool  // Close was called
	wake     chan struct{}
	closed   counts.ClosedRing
	warnings warnings

	judge judge // owned by its goroutine

	mu      sync.Mutex // guards the fields below and replacing settings
	judging bool       // there is a goroutine
	updates uint64
	monitor monitorStats
}

// An ask queries the kernel about a connection. Whether bytes wait unread need not be found out if
// the last one came less than fresh ago. It reports false if the connection is closed.
type ask func(c net.Conn, fresh time.Duration, ev *verdict.Evidence) (open bool)

// warnings limit each warning to one per second.
type warnings struct{ outage, hold, keepalive, foreign, hidden logging.Limiter }

// Listen returns a Listener around inner, a listener of TCP or unix sockets. The error joins all
// mistakes in the Config. It names the limits that the sockets of inner cannot keep.
func Listen(inner net.Listener, cfg Config) (*Listener, error) {
	checked, err := cfg.check(0)
	if inner == nil {
		return nil, errors.Join(errors.New("idlenet: the listener is nil"), err)
	}
	if err := errors.Join(err, cfg.checkSockets(inner.Addr())); err != nil {
		return nil, err
	}
	return newListener(inner, checked, mono.Real(), askKernel), nil
}

// maxShards bounds the memory of a Listener that serves few connections on a large machine.
const maxShards = 64

// newListener returns a Listener with a checked Config. A simulation passes its own clock and
// kernel.
func newListener(inner net.Listener, cfg Config, elapsed func() mono.Time, ask ask) *Listener {
	all, _ := sourcelimit.New(cfg.Sources) // checked
	l := &Listener{inner: inner, sources: all, rate: sourcelimit.NewRate(cfg.AcceptRate), ask: ask, wake: make(chan struct{}, 1)}
	l.run = func() { go l.judge.run() }
	l.spawn = func(call func()) { go call() }
	l.clock.Init(cfg.Tick, cfg.clockMemory(), elapsed)
	l.settings.Store(newSettings(cfg, verdict.Drain{}, nil, 0))
	l.judge.init(l, elapsed())
	for n := range min(runtime.GOMAXPROCS(0), maxShards) {
		l.shards = append(l.shards, newShard(l, uint32(n)))
	}
	return l
}

// Accept waits for the next connection and watches it. It returns the connection of the inner
// listener itself, unless Config.Stamp is set. Errors are those of the inner listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			return nil, err
		}
		if !l.admit(c) {
			l.refused.Add(1)
			_ = c.Close()
			continue
		}
		return l.add(c, false), nil
	}
}

// Close closes the inner listener. The connections stay, and are watched until they close.
func (l *Listener) Close() error {
	l.closing.Store(true)
	l.poke()
	return l.inner.Close()
}

// Addr returns the address of the inner listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Connections returns the number of open connections. A connection that its server has closed
// counts until it is found closed, see "Closed connections" in the package comment.
func (l *Listener) Connections() int { return int(l.total.Load()) }

// Watch begins to watch a connection that was dialled. MaxConnections does not apply to it. With
// Config.Stamp use the connection that Watch returns; otherwise it is c. The error says that c is
// no socket, or that the Listener watches it already.
func (l *Listener) Watch(c net.Conn) (net.Conn, error) {
	if _, ok := l.find(c); ok {
		return c, errors.New("idlenet: the connection is watched already")
	}
	if _, ok := root(c); !ok {
		return c, errNoSocket(c)
	}
	return l.add(c, true), nil
}

// add watches a connection.
func (l *Listener) add(c net.Conn, dialled bool) net.Conn {
	own, ok := root(c)
	if !ok {
		l.warn(&l.warnings.foreign, "a connection is not watched: no limit applies to it", "error", errNoSocket(c))
		if !dialled {
			l.sources.Release(sourcelimit.AddrOf(c.RemoteAddr()))
		}
		return c
	}
	set := l.settings.Load()
	if keepAlive := set.cfg.TCPKeepAlive; keepAlive > 0 {
		l.keepAlive(own, keepAlive)
	}
	if set.cfg.Stamp {
		c = &stampedConn{Conn: c, listener: l}
	}
	l.total.Add(1)
	l.startJudge()
	l.shard(own).add(c, own, dialled)
	return c
}

// startJudge starts the goroutine that judges, unless it runs. The caller has counted a connection.
func (l *Listener) startJudge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.judging {
		return
	}
	l.judging = true
	_, now := l.clock.Move() // it stood still without connections
	l.judge.resume(now)
	l.run()
}

// poke makes the goroutine that judges look for work before the next tick.
func (l *Listener) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// warn logs a warning, unless the same one was logged less than a second ago.
func (l *Listener) warn(w *logging.Limiter, text string, args ...any) {
	if w.AllowAt(l.clock.Elapsed()) {
		l.settings.Load().cfg.Logger.Warn(text, args...)
	}
}

// untilTick returns the time until the next multiple of the tick.
func (l *Listener) untilTick() time.Duration {
	now, tick := l.clock.Elapsed(), l.clock.Tick()
	return now.Truncate(tick).Add(tick).Sub(now)
}
