package idlenet

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/idlewheel/idlewheel/internal/kernel"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

var (
	_ net.Listener = (*Listener)(nil)
	_ reap.Reaper  = (*Listener)(nil)
)

// A Listener is a net.Listener that watches the connections that it accepts. [Listen] makes one.
// Its methods are safe for concurrent use.
//
// Arguments that are a net.Conn may be the connection that Accept has returned, or one around it
// that has a method NetConn, such as a *tls.Conn, or that Config.Unwrap knows.
type Listener struct {
	// Immutable.
	inner   net.Listener
	rate    *rate.Limiter // of all new connections
	sources *sourcelimit.Sources
	watch   watch.Watcher
	ask     ask
	unwrap  func(net.Conn) net.Conn // Config.Unwrap
	shards  []*shard
	run     func()       // runs the driver on a goroutine
	spawn   func(func()) // makes a call on a goroutine of its own

	stamped  atomic.Int64 // the stamp at which a Read of a stamped connection returned last
	refused  atomic.Uint64
	turn     atomic.Uint64 // of the shards, to make room
	searched atomic.Int64  // the instant of the last searchAll
	closing  atomic.Bool   // Close was called

	knowsReady atomic.Bool // the server has told of a connection that its handshake is over
	wake       chan struct{}
	warnings   struct{ keepalive, foreign, hidden, unready logging.Limiter } // one a second of each

	driver driver // owned by its goroutine

	mu      sync.Mutex
	driving bool // guarded by mu; there is a goroutine
}

// An ask queries the kernel about a connection. Whether bytes wait unread need not be found out if
// the last one came less than fresh ago. It reports false if the connection is closed.
type ask func(own socket, fresh time.Duration, ev *verdict.Evidence) (open bool)

// Listen returns a Listener around inner, a listener of TCP or unix sockets. The error joins all
// mistakes in the Config. It names the limits that the sockets of inner cannot keep.
func Listen(inner net.Listener, cfg Config) (*Listener, error) {
	var addr net.Addr
	if inner != nil {
		addr = inner.Addr()
	}
	checked, err := cfg.check(addr, 0, nil)
	if inner == nil {
		err = errors.Join(errors.New("idlenet: the listener is nil: pass the net.Listener to wrap"), err)
	}
	if err != nil {
		return nil, err
	}
	return newListener(inner, checked, mono.Real(), askKernel), nil
}

// maxShards bounds the memory of a Listener that serves few connections on a large machine.
const maxShards = 64

// newListener returns a Listener with a checked Config. A simulation passes its own clock and
// kernel.
func newListener(inner net.Listener, cfg watch.Config, elapsed func() mono.Time, ask ask) *Listener {
	own := cfg.Front.(*Config)
	all, _ := sourcelimit.New(own.Sources) // checked
	l := &Listener{inner: inner, sources: all, rate: sourcelimit.NewRate(own.AcceptRate), ask: ask, unwrap: own.Unwrap, wake: make(chan struct{}, 1)}
	l.run = func() { go l.driver.drive() }
	l.spawn = func(call func()) { go call() }
	l.watch.Init(&form, cfg, elapsed, l.wake)
	l.driver.listener = l
	for n := range min(runtime.GOMAXPROCS(0), maxShards) {
		l.shards = append(l.shards, newShard(l, uint32(n+1)))
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
		return l.add(c, 0), nil
	}
}

// Close closes the inner listener. The connections stay, and are watched until they close.
func (l *Listener) Close() error {
	l.closing.Store(true)
	l.watch.Wake()
	return l.inner.Close()
}

// Addr returns the address of the inner listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Connections returns the number of open connections. A connection that its server has closed
// counts until it is found closed, see "Closed connections" in the package comment.
func (l *Listener) Connections() int { return int(l.watch.Open.Load()) }

// Stats returns a snapshot of the counters. What is not known without a call for each message is 0:
// Reads, ClosedByPeer, Failed.
func (l *Listener) Stats() Stats {
	var all watch.Counters
	for _, s := range l.shards {
		s.locked(func() {
			all.Add(&s.Counters)
			all.Entries += s.Schedule.Len()
		})
	}
	all.Connections, all.Refused = l.Connections(), l.refused.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watch.Stats(&all, l.driving)
}

// Watch begins to watch a connection that was dialled. MaxConnections does not apply to it. With
// Config.Stamp use the connection that Watch returns; otherwise it is c. The error says that c is
// no socket, or that the Listener watches it already.
func (l *Listener) Watch(c net.Conn) (net.Conn, error) {
	if l.ID(c) != "" {
		return c, errors.New("idlenet: the connection is watched already")
	}
	if _, ok := l.root(c); !ok {
		return c, errNoSocket(c)
	}
	return l.add(c, dialled), nil
}

// add watches a connection.
func (l *Listener) add(c net.Conn, flags uint32) net.Conn {
	own, ok := l.root(c)
	if !ok {
		l.watch.Warn(&l.warnings.foreign, "a connection is not watched: no limit applies to it", "error", errNoSocket(c))
		if flags&dialled == 0 {
			l.sources.Release(sourcelimit.AddrOf(c.RemoteAddr()))
		}
		return c
	}
	_ = control(own, func(fd uintptr) { kernel.NoteOpened(int(fd)) })
	if l.watch.Settings().Front.(*Config).Stamp {
		c = &stampedConn{Conn: c, listener: l}
	}
	l.watch.Open.Add(1)
	l.startDriver()
	l.shard(own).add(c, own, flags)
	return c
}

// startDriver starts the driver, unless it runs. The caller has counted a connection.
func (l *Listener) startDriver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.driving {
		l.driving = true
		l.watch.Resume() // it stood still without connections
		l.run()
	}
}
