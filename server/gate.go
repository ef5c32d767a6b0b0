package server

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// gateLook is how often is looked whether a closed gate can be opened.
	gateLook = 20 * time.Millisecond
	// warnEvery is the time for which no more than one warning about the same thing is logged.
	warnEvery = time.Second
)

// A gate stops accepting while there is no room, and goes on when there is. While it is closed the system drops what asks for a
// connection, and the client asks again, first after a second. Safe for concurrent use.
type gate struct {
	addr  address
	want  int // listeners of the engine
	log   *slog.Logger
	room  func() bool    // reports whether there is room enough to go on
	count *atomic.Uint64 // of the times that it was closed

	ready  atomic.Bool // latch does not change any more
	closed atomic.Bool
	used   atomic.Bool   // it was closed once
	done   chan struct{} // closed by end
	wait   sync.WaitGroup

	mu      sync.Mutex
	latch   latch     // guarded by mu until ready; without sockets if they cannot be paused
	ended   bool      // guarded by mu: the listeners may be gone
	forGood bool      // guarded by mu: it is not opened any more
	logged  time.Time // guarded by mu; when a pause was logged last
}

// gates are those of the servers that run in this process. Several may listen on one port, and each pauses its own sockets only: those
// that boot at the same time do so one after the other (booting), so that each finds what the others have not.
var gates struct {
	mu  sync.Mutex // may be held when that of a gate is taken, not the other way round
	all []*gate    // guarded by mu
}

// booting has one element while a server boots that shares its port.
var booting = make(chan struct{}, 1)

// bootTime is how long a server may take to open its listeners.
const bootTime = 5 * time.Second

// newGate returns the gate of an engine that is about to open so many listeners. The caller calls end before they go and forget afterwards.
func newGate(addr address, want int, log *slog.Logger, room func() bool, count *atomic.Uint64) *gate {
	g := &gate{addr: addr, want: want, log: log, room: room, count: count, done: make(chan struct{})}
	gates.mu.Lock()
	defer gates.mu.Unlock()
	gates.all = append(gates.all, g)
	return g
}

// forget is called when the listeners are gone.
func (g *gate) forget() {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	gates.all = slices.DeleteFunc(gates.all, func(other *gate) bool { return other == g })
}

// prepare finds the listening sockets, and reports whether that is done: the engine opens them one by one, and all before the first
// connection comes; then it takes what there is. It takes a descriptor that may not be there later, or just now.
func (g *gate) prepare(all bool) (done bool) {
	if g.ready.Load() {
		return true
	}
	gates.mu.Lock()
	defer gates.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() || g.ended {
		return true
	}
	fds, err := listeners(g.addr)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return false
	}
	for _, other := range gates.all {
		if other != g && other.ready.Load() {
			fds = slices.DeleteFunc(fds, func(fd int) bool { return slices.Contains(other.latch.fds, fd) })
		}
	}
	if len(fds) < g.want && !all && !errors.Is(err, errCannotPause) {
		return false
	}
	l := latch{}
	if err == nil {
		if l, err = newLatch(fds); err != nil && !all { // the engine has not told its pollers yet
			return false
		}
	}
	switch {
	case errors.Is(err, errCannotPause):
	case err != nil:
		g.log.Warn("accepting cannot be paused: who comes when there is no room is rejected", "because", err)
		l = latch{}
	case !l.drops():
		g.log.Info("without CAP_NET_ADMIN: accepting is paused by the pollers and a short backlog instead of a filter")
	}
	g.latch = l
	g.ready.Store(true)
	return true
}

// errCannotPause is returned for listeners that the system cannot pause, as is documented.
var errCannotPause = errors.New("only TCP on Linux can be paused")

// shut closes the gate until there is room. If it was open, it calls first before anybody looks for room. Where accepting cannot be paused
// that is all that it does.
func (g *gate) shut(why string, first func()) {
	if !g.ready.Load() || g.closed.Swap(true) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	first()
	g.used.Store(true)
	if err := g.latch.close(); err != nil {
		g.log.Warn("pausing accept", "error", err)
	}
	n := g.count.Add(1)
	log := time.Since(g.logged) >= warnEvery
	if log {
		g.logged = time.Now()
		g.log.Warn("accepting is paused", "because", why, "pauses", n, "listeners", len(g.latch.fds))
	}
	g.wait.Go(func() { g.watch(log) })
}

// shutForGood closes the gate before the server stops, if newcomers are dropped then. Otherwise it is better to tell them at once that they
// are to go elsewhere, than to let them wait for the end: it stays open, or is opened when there is room.
func (g *gate) shutForGood() {
	g.prepare(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || !g.latch.drops() {
		return
	}
	g.forGood = true
	g.used.Store(true)
	if err := g.latch.close(); err != nil {
		g.log.Warn("pausing accept", "error", err)
	}
}

// isDropping reports whether newcomers are dropped while the gate is closed.
func (g *gate) isDropping() bool { return g.ready.Load() && g.latch.drops() }

// watch opens the gate when there is room, and logs that if it is told to.
func (g *gate) watch(log bool) {
	look := time.NewTicker(gateLook)
	defer look.Stop()
	began := time.Now()
	for !g.room() {
		select {
		case <-g.done:
			return
		case <-look.C:
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.forGood {
		return
	}
	if err := g.latch.open(); err != nil {
		g.log.Error("going on to accept", "error", err)
	}
	g.closed.Store(false)
	if log {
		g.log.Warn("accepting goes on", "after", time.Since(began))
	}
}

// end leaves the gate as it is, before the listeners go, and waits for its goroutine.
func (g *gate) end() {
	g.mu.Lock()
	if !g.ended {
		g.ended = true
		close(g.done)
	}
	g.mu.Unlock()
	g.wait.Wait()
}
