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

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

const (
	// acceptorsPerLoop is the number of goroutines that accept for each event loop and listener.
	// While the loop opens the connection of one of them, the others accept.
	acceptorsPerLoop = 2
	// An acceptor that cannot accept tries again after minAcceptPause, and then after twice the
	// pause before. New clients wait meanwhile, so the pause does not grow to a second as in
	// net/http: a hundred errors in a row take less than that.
	minAcceptPause = time.Millisecond
	maxAcceptPause = 8 * time.Millisecond
)

// acceptors accept connections while there is room for them, and hand them to event loops. The
// others wait in the queue of the kernel. Safe for concurrent use.
type acceptors struct {
	setup
	admission *admission
	room      *room
	log       *slog.Logger
	delay     bool // connections have Nagle's algorithm

	accepting context.Context // done when accepting ends
	end       context.CancelFunc
	running   sync.WaitGroup
	ended     chan struct{} // closed when all acceptors have ended

	pauses *pauses
	failed logging.Limiter
}

func newAcceptors(s *Server) *acceptors {
	a := &acceptors{
		ended: make(chan struct{}), setup: s.setup(), admission: s.admission, log: s.cfg.Logger, pauses: &s.pauses,
		delay: s.cfg.gnetOptions().TCPNoDelay == gnet.TCPDelay,
	}
	a.room = newRoom(a.limit, s.reaper)
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
// queue of the kernel.
func (a *acceptors) stop(refuse bool) {
	a.end()
	for _, ln := range a.listeners {
		// A listener without deadlines cannot be kept.
		patient, ok := ln.(interface{ SetDeadline(time.Time) error })
		if refuse || !ok || patient.SetDeadline(time.Unix(1, 0)) != nil {
			_ = ln.Close()
		}
	}
}

// wait waits until all acceptors have ended, or an event loop has died: that loop does not open the
// connection that an acceptor has for it.
func (a *acceptors) wait(alive context.Context) {
	select {
	case <-a.ended:
	case <-alive.Done():
	}
}

// accept accepts connections of a listener for a loop, until accepting ends.
func (a *acceptors) accept(ln net.Listener, loop *gnet.Client) {
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			a.open(conn, loop)
		case a.accepting.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed): // by its owner
			a.survive(err)
			return
		default:
			pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
			a.survive(err)
			sleep(a.accepting, pause)
		}
	}
}

// survive logs an error of accepting or opening a connection. The next attempt may succeed.
func (a *acceptors) survive(err error) {
	if errors.Is(err, syscall.EMFILE) {
		if fd, ok := lowestFree(); !ok || fd >= a.budget.full() {
			a.runShort()
		}
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
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.Zone != "" {
		tcp.Zone = strings.Clone(tcp.Zone)
	}
}

// open hands a connection to a loop when there is room for it, or closes it.
func (a *acceptors) open(conn net.Conn, loop *gnet.Client) {
	from := sourcelimit.AddrOf(conn.RemoteAddr())
	if !isKnown(conn) {
		_ = conn.Close()
		a.survive(fmt.Errorf("a connection of type %T: gnet takes *net.TCPConn, and *net.UnixConn of streams", conn))
		return
	}
	if !a.admission.admit(from) {
		_ = conn.Close()
		return
	}
	if !a.enter() {
		a.admission.sources.Release(from)
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
	} else if full := a.budget.full(); full > 0 && e.descriptor >= full {
		a.runShort()
	}
}

// enter waits for room, and reports whether there is some before accepting ends.
func (a *acceptors) enter() bool {
	if !a.room.places.TryAcquire(1) {
		a.pauses.begin(a.log, fmt.Sprintf("%d connections are open, the limit", a.room.reaper.Connections()))
		err := a.room.places.Acquire(a.accepting, 1)
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

// pauses logs and counts the times in which clients wait for room. Safe for concurrent use.
type pauses struct {
	warning logging.Limiter
	count   atomic.Uint64

	mu      sync.Mutex
	waiting atomic.Int64 // changed under mu; clients that wait
	logged  time.Time    // guarded by mu; when the present pause began, zero if it is not in the log
}

// begin counts a client that waits.
func (p *pauses) begin(log *slog.Logger, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Add(1) > 1 {
		return
	}
	n := p.count.Add(1)
	p.logged = time.Time{}
	if p.warning.Allow() {
		p.logged = time.Now()
		log.Warn("accepting is paused", "because", why, "pauses", n)
	}
}

// end takes that back. The server resumes accepting after the last one, if it is not stopping.
func (p *pauses) end(log *slog.Logger, resumes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Add(-1) == 0 && resumes && !p.logged.IsZero() {
		log.Warn("accepting resumes", "after", time.Since(p.logged))
	}
}
