package idlenet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
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

var _ reap.Reaper = (*Reaper)(nil)

// A Reaper watches connections: those of its listeners, and those that engines of their own have
// passed to Admit or Watch. [New] makes one, and so does [Listen] for one listener. Its methods are
// safe for concurrent use.
//
// Arguments that are a net.Conn may be the connection that Accept has returned, or one around it
// that has a method NetConn, such as a *tls.Conn, or that Config.Unwrap knows.
type Reaper struct {
	// Immutable.
	rate    *rate.Limiter // of all new connections
	sources *sourcelimit.Sources
	watch   watch.Watcher
	ask     ask
	unwrap  func(net.Conn) net.Conn // Config.Unwrap
	shards  []*shard
	run     func()       // runs the driver on a goroutine
	spawn   func(func()) // makes a call on a goroutine of its own

	stamped  atomic.Int64  // the stamp at which a Read of a stamped connection returned last
	turn     atomic.Uint64 // of the shards, to make room
	searched atomic.Int64  // the instant of the last searchAll

	refused struct{ source, rate, room atomic.Uint64 } // connections, by the reason

	listening atomic.Int64 // open listeners, and 1 for a Reaper of New

	knowsReady atomic.Bool // the server has told of a connection that its handshake is over

	// Each is logged once a second.
	warnings struct{ keepalive, foreign, hidden, unready, rejected logging.Limiter }

	driver driver // owned by its goroutine

	mu      sync.Mutex // guards the fields below
	driving bool       // there is a goroutine
	addr    net.Addr   // of a listener, one without TCP if there is such a one; nil if there is none
}

// An ask queries the kernel about a connection. Whether bytes wait unread need not be found out if
// the last one came less than fresh ago. It reports false if the connection is closed.
type ask func(own socket, fresh time.Duration, ev *verdict.Evidence) (open bool)

// New returns a Reaper without a listener. Its goroutine ends when no connection is open and no
// reason is kept, whether its listeners are closed or not. The error joins all mistakes in the
// Config.
func New(cfg Config) (*Reaper, error) {
	checked, err := cfg.check(nil, 0, nil)
	if err != nil {
		return nil, err
	}
	r := newReaper(checked, mono.Real(), askKernel)
	r.listening.Store(1)
	return r, nil
}

// maxShards bounds the memory of a Reaper that serves few connections on a large machine.
const maxShards = 64

// newReaper returns a Reaper with a checked Config. A simulation passes its own clock and kernel.
func newReaper(cfg watch.Config, elapsed func() mono.Time, ask ask) *Reaper {
	own := cfg.Front.(*Config)
	all, _ := sourcelimit.New(own.Sources) // checked
	r := &Reaper{sources: all, rate: sourcelimit.NewRate(own.AcceptRate), ask: ask, unwrap: own.Unwrap}
	r.run = func() { go r.driver.drive() }
	r.spawn = func(call func()) { go call() }
	r.watch.Init(&form, cfg, elapsed)
	r.driver.reaper, r.driver.rest = r, r.driver.lull.wait
	shards := min(runtime.GOMAXPROCS(0), maxShards)
	for n := range shards {
		r.shards = append(r.shards, newShard(r, uint32(n+1), shards))
	}
	return r
}

// Connections returns the number of open connections. A connection that its server has closed
// counts until it is found closed, see "Closed connections" in the package comment.
func (r *Reaper) Connections() int { return int(r.watch.Open.Load()) }

// Stats returns a snapshot of the counters. What is not known without a call for each message is 0:
// Reads, ClosedByPeer, Failed.
func (r *Reaper) Stats() Stats {
	var all watch.Counters
	for _, s := range r.shards {
		s.locked(func() { all.Add(s.Count()) })
	}
	all.RefusedBySource, all.RefusedByRate = r.refused.source.Load(), r.refused.rate.Load()
	all.Refused = r.refused.room.Load() + all.RefusedBySource + all.RefusedByRate
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watch.Stats(&all, r.driving)
}

// ErrRefused is the error of [Reaper.Admit] for a connection above a limit.
var ErrRefused = errors.New("idlenet: the connection is above a limit, or the Reaper drains: close it")

var (
	errWatched = errors.New("idlenet: the connection is watched already")
	errClosed  = fmt.Errorf("idlenet: the connection is closed already: %w", net.ErrClosed)
)

// Admit watches a connection that the caller has accepted, for servers that do not call
// [Listener.Accept]. With Config.Stamp use the connection that Admit returns; otherwise it is c.
//
// The error is [ErrRefused] if MaxConnections, Sources, AcceptRate or a drain does not allow the
// connection. Otherwise it says that c is no socket, or closed, that the Reaper watches it already,
// or which limits its socket cannot keep. The caller closes the connection then.
func (r *Reaper) Admit(c net.Conn) (net.Conn, error) {
	if err := r.checkNew(c); err != nil {
		return c, err
	}
	if !r.admit(c, nil) {
		return c, ErrRefused
	}
	return r.add(c, 0)
}

// Watch is [Reaper.Admit] for a connection that was dialled. It is never refused by a limit. Its
// timeouts begin with the call, whatever was sent before.
func (r *Reaper) Watch(c net.Conn) (net.Conn, error) {
	if err := r.checkNew(c); err != nil {
		return c, err
	}
	return r.add(c, dialled)
}

// checkNew refuses a connection that cannot be watched.
func (r *Reaper) checkNew(c net.Conn) error {
	own, ok := r.root(c)
	if !ok {
		return errNoSocket(c)
	}
	if isClosed(own) {
		return errClosed // it must not make room for itself
	}
	if _, err := r.Conn(c); err == nil {
		return errWatched
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkKind(own.LocalAddr())
}

// checkKind refuses sockets that cannot keep the limits of the Config, and remembers what sockets
// there are, for later changes of the Config. The caller holds mu.
func (r *Reaper) checkKind(addr net.Addr) error {
	if err := checkSocketsOf(r.watch.Settings().Front.(*Config), addr); err != nil {
		return err
	}
	if r.addr == nil || !isTCP(addr) {
		r.addr = addr
	}
	return nil
}

// Forget says that the server has closed a connection. The Reaper finds that out by itself, but
// later, and not for engines in which the descriptor outlives the Close of the connection: they
// must call Forget. The error is [ErrNotWatched] if the Reaper does not watch the connection.
func (r *Reaper) Forget(c net.Conn) error {
	err := form.NotWatched()
	r.with(c, func(s *shard, id uint32, n *conn) {
		err = nil
		s.forget(id, n)
	})
	return err
}

// add watches a connection. The error says that it is no socket, or watched already.
func (r *Reaper) add(c net.Conn, flags uint32) (net.Conn, error) {
	own, ok := r.root(c)
	if !ok {
		r.giveBack(r.sourceOf(c), flags)
		return c, errNoSocket(c)
	}
	_ = control(own, func(fd uintptr) { kernel.NoteOpened(int(fd)) })
	if r.watch.Settings().Front.(*Config).Stamp {
		c = &stampedConn{Conn: c, reaper: r}
	}
	r.watch.Open.Add(1)
	r.startDriver()
	if !r.shard(own).add(c, own, flags) {
		r.watch.Open.Add(-1)
		r.giveBack(r.sourceOf(c), flags)
		return c, errWatched
	}
	return c, nil
}

// sourceOf returns the address of the peer of the socket. A wrapper may find another one in a PROXY
// header, and would block until the header has come.
func (r *Reaper) sourceOf(c net.Conn) netip.Addr {
	if own, ok := r.root(c); ok {
		c = own
	}
	return sourcelimit.AddrOf(c.RemoteAddr())
}

// giveBack frees the place of a connection among those of its source.
func (r *Reaper) giveBack(from netip.Addr, flags uint32) {
	if flags&dialled == 0 {
		r.sources.Release(from)
	}
}

// startDriver starts the driver, unless it runs. The caller has counted a connection.
func (r *Reaper) startDriver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.driving {
		r.driving = true
		r.watch.Resume() // it stood still without connections
		r.run()
	}
}
