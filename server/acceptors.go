package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

const (
	// An acceptor that cannot accept tries again after acceptPause. New clients wait meanwhile, so
	// the pause does not grow to a second as in net/http: a hundred errors in a row take less than
	// that.
	acceptPause = 4 * time.Millisecond
	// stopPoll is the interval at which the end of accepting is checked.
	stopPoll = time.Millisecond
	// maxStopWait bounds the wait for acceptors to leave Accept: a listener may have no deadlines
	// although it says so.
	maxStopWait = time.Second
	// shortagePoll is the interval at which the descriptors in use are counted during a shortage.
	shortagePoll = 500 * time.Millisecond
)

// acceptors accept connections while there is room for them, and hand them to event loops. The
// others wait in the queue of the kernel. Safe for concurrent use.
type acceptors struct {
	*setup
	admission *admission
	room      *room
	log       *slog.Logger
	delay     bool // connections have Nagle's algorithm

	stopping  atomic.Bool     // an error of Accept is the end
	busy      atomic.Int64    // acceptors in Accept, or opening a connection for which there is room
	accepting context.Context // done when no listener accepts any more
	end       context.CancelFunc
	running   sync.WaitGroup // acceptors
	following sync.WaitGroup // followDescriptors, which acceptors start
	ended     chan struct{}  // closed when all acceptors have ended

	pauses *pauses
	failed logging.Limiter
}

func newAcceptors(cfg *Config, set *setup, r *idle.Reaper, admission *admission, pauses *pauses) *acceptors {
	a := &acceptors{
		setup: set, admission: admission, room: newRoom(set.limit, r), log: cfg.Logger, delay: cfg.gnetOptions().TCPNoDelay == gnet.TCPDelay,
		ended: make(chan struct{}), pauses: pauses,
	}
	a.accepting, a.end = context.WithCancel(context.Background())
	return a
}

func (a *acceptors) start(loops []*gnet.Client) {
	for _, loop := range loops {
		for _, ln := range a.listeners {
			for range acceptorsPerLoop {
				a.running.Go(func() { a.accept(ln, loop) })
			}
		}
	}
	go func() {
		a.running.Wait()
		close(a.ended)
	}()
}

// stop ends accepting. With refuse, new clients are refused from now on. Otherwise they wait in the
// queue of the kernel: the listeners stop before accepting ends, so that none of these clients is
// accepted and then refused.
func (a *acceptors) stop(refuse bool) {
	a.stopping.Store(true)
	for _, ln := range a.listeners {
		// A listener without deadlines cannot be kept.
		patient, ok := ln.(interface{ SetDeadline(time.Time) error })
		if refuse || !ok || patient.SetDeadline(time.Unix(1, 0)) != nil {
			_ = ln.Close()
		}
	}
	// An acceptor that was woken by the deadline, but has not run yet, may accept one more client.
	for waited := time.Duration(0); a.busy.Load() > 0 && waited < maxStopWait; waited += stopPoll {
		time.Sleep(stopPoll)
	}
	a.end()
}

// wait waits until all goroutines of the acceptors have ended, or an event loop has died: that loop
// does not open the connection that an acceptor has for it. The caller has called stop.
func (a *acceptors) wait(alive context.Context) {
	select {
	case <-a.ended:
		a.following.Wait()
	case <-alive.Done():
	}
}

// accept accepts connections of a listener for a loop, until accepting ends.
func (a *acceptors) accept(ln net.Listener, loop *gnet.Client) {
	for {
		a.busy.Add(1)
		conn, err := ln.Accept()
		if err == nil {
			a.open(conn, loop)
		}
		a.busy.Add(-1)
		if err == nil {
			continue
		}
		if a.stopping.Load() {
			return
		}
		a.survive(err)
		if errors.Is(err, net.ErrClosed) { // by its owner
			return
		}
		sleep(a.accepting, acceptPause)
	}
}

// survive logs an error of accepting or opening a connection. The next attempt may succeed.
func (a *acceptors) survive(err error) {
	if errors.Is(err, syscall.EMFILE) && lowestFree() >= a.budget.full() {
		a.runShort()
	}
	if a.failed.Allow() {
		a.log.Warn("a connection could not be accepted", "error", err)
	}
}

// An entry is the context of a connection until OnOpen.
type entry struct {
	opened     bool
	descriptor int // the lowest one that was free when gnet duplicated the descriptor
}

// isKnown reports whether gnet takes a connection. gnet duplicates the descriptor of any other as
// well, and does not close the duplicate.
func isKnown(conn net.Conn) bool {
	_, isTCP := conn.(*net.TCPConn)
	_, isUnix := conn.(*net.UnixConn)
	return isTCP || isUnix && conn.LocalAddr().Network() == "unix"
}

// ownZone gives an address a zone of its own. At the close gnet puts the bytes of the zones of both
// addresses into a pool of buffers. Those of package net are of one string for all connections, so
// that two connections would get the same buffer.
func ownZone(addr net.Addr) {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		tcp.Zone = strings.Clone(tcp.Zone)
	}
}

// open hands a connection to a loop when there is room for it, or closes it.
func (a *acceptors) open(conn net.Conn, loop *gnet.Client) {
	from := sourcelimit.AddrOf(conn.RemoteAddr())
	if !a.admit(conn, from) {
		_ = conn.Close()
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok && a.delay {
		_ = tcp.SetNoDelay(false)
	}
	ownZone(conn.LocalAddr())
	ownZone(conn.RemoteAddr())
	var e entry
	_, err := loop.EnrollContext(conn, &e) // which closes conn, and returns after OnOpen
	if !e.opened {
		a.leave(from)
		unknown := errors.New("the poller does not take it: see fs.epoll.max_user_watches")
		a.survive(fmt.Errorf("opening a connection: %w", cmp.Or(err, unknown)))
	} else if e.descriptor >= a.budget.full() {
		a.runShort()
	}
}

// admit waits for room, and reports whether a connection is served. If so, the caller calls leave
// when it is closed.
func (a *acceptors) admit(conn net.Conn, from netip.Addr) bool {
	if !isKnown(conn) {
		a.survive(fmt.Errorf("a connection of type %T: gnet takes *net.TCPConn, and *net.UnixConn of streams", conn))
		return false
	}
	if !a.admission.admit(from) {
		return false
	}
	entered := a.enter()
	if !entered {
		a.admission.sources.Release(from)
	}
	return entered
}

// enter waits for room, and reports whether there is some before accepting ends.
func (a *acceptors) enter() bool {
	if !a.room.places.TryAcquire(1) {
		a.pauses.begin(a.log, fmt.Sprintf("%d connections are open, the limit", a.room.reaper.Connections()))
		a.busy.Add(-1)
		err := a.room.places.Acquire(a.accepting, 1)
		a.busy.Add(1)
		a.pauses.end(a.log, err == nil)
		if err != nil {
			return false
		}
	}
	a.room.taken.Add(1)
	return true
}

// leave makes room again: a connection that had entered is closed.
func (a *acceptors) leave(from netip.Addr) {
	a.room.leave()
	a.admission.sources.Release(from)
}

// runShort begins a shortage, or makes it worse.
func (a *acceptors) runShort() {
	if left, begins := a.room.shrink(); begins {
		a.log.Warn("descriptors are short: there is room for fewer connections", "room", left)
		a.following.Go(a.followDescriptors)
	}
}

// followDescriptors makes room again as descriptors become free, until there are enough.
func (a *acceptors) followDescriptors() {
	for sleep(a.accepting, shortagePoll) {
		// Connections are opened and closed while descriptors are counted.
		before := a.room.taken.Load()
		used := descriptorsInUse()
		if a.room.grow(int(min(before, a.room.taken.Load())) + a.budget.full() - used) {
			a.log.Warn("descriptors suffice again", "room", a.room.size())
			return
		}
	}
}

// sleep waits, and reports whether the time has passed before the context was done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
