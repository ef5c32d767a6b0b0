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

// gateLook is how often is looked whether a closed gate can be opened.
const gateLook = 20 * time.Millisecond

// pauseLog is the time for which no more than one pause is logged.
const pauseLog = time.Second

// A gate stops accepting while there is no room, and goes on when there is. While it is closed the system drops what asks for a
// connection, and the client asks again, first after a second. Safe for concurrent use.
type gate struct {
	addr  address
	log   *slog.Logger
	room  func() bool    // reports whether there is room enough to go on
	count *atomic.Uint64 // of the times that it was closed

	ready  atomic.Bool // fds does not change any more
	closed atomic.Bool
	done   chan struct{} // closed by end
	wait   sync.WaitGroup

	mu     sync.Mutex
	fds    []int     // guarded by mu until ready; listening sockets, none if they cannot be paused
	ended  bool      // guarded by mu: the listeners may be gone
	logged time.Time // guarded by mu; when a pause was logged last
}

// gates are those of the servers that run in this process. Several may listen on one port, and each pauses its own sockets only.
var gates struct {
	mu  sync.Mutex // may be held when that of a gate is taken, not the other way round
	all []*gate    // guarded by mu
}

// newGate returns the gate of an engine that is about to run. The caller calls end before its listeners go and forget afterwards.
func newGate(addr address, log *slog.Logger, room func() bool, count *atomic.Uint64) *gate {
	g := &gate{addr: addr, log: log, room: room, count: count, done: make(chan struct{})}
	gates.mu.Lock()
	defer gates.mu.Unlock()
	for _, other := range gates.all {
		if other.addr.addr.String() == addr.addr.String() {
			other.find() // as long as it can tell which are its own
		}
	}
	gates.all = append(gates.all, g)
	return g
}

// forget is called when the listeners are gone.
func (g *gate) forget() {
	gates.mu.Lock()
	defer gates.mu.Unlock()
	gates.all = slices.DeleteFunc(gates.all, func(other *gate) bool { return other == g })
}

// prepare finds the listening sockets, which takes a descriptor that may not be there later, or just now: then the next call tries
// again. The engine has them all by the time that the first connection comes.
func (g *gate) prepare() {
	if g.ready.Load() {
		return
	}
	gates.mu.Lock()
	defer gates.mu.Unlock()
	g.find()
}

// find is prepare for who holds gates.mu.
func (g *gate) find() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() || g.ended {
		return
	}
	fds, err := listeners(g.addr)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return
	}
	if err != nil && g.addr.network != "unix" { // which is known not to be paused
		g.log.Warn("accepting cannot be paused: who comes when there is no room is rejected", "because", err)
	}
	for _, other := range gates.all {
		if other != g && other.ready.Load() {
			fds = slices.DeleteFunc(fds, func(fd int) bool { return slices.Contains(other.fds, fd) })
		}
	}
	g.fds = fds
	g.ready.Store(true)
}

// shut closes the gate until there is room. If it was open, it calls first before anybody looks for room.
func (g *gate) shut(why string, first func()) {
	if !g.ready.Load() || len(g.fds) == 0 || g.closed.Swap(true) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	first()
	if err := filter(g.fds, true); err != nil {
		g.log.Warn("pausing accept", "error", err)
	}
	n := g.count.Add(1)
	log := time.Since(g.logged) >= pauseLog
	if log {
		g.logged = time.Now()
		g.log.Warn("accepting is paused", "because", why, "pauses", n)
	}
	g.wait.Go(func() { g.watch(log) })
}

// shutForGood closes the gate before the server stops.
func (g *gate) shutForGood() {
	g.prepare()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || len(g.fds) == 0 {
		return
	}
	g.closed.Store(true)
	if err := filter(g.fds, true); err != nil {
		g.log.Warn("pausing accept", "error", err)
	}
}

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
	if g.ended {
		return
	}
	if err := filter(g.fds, false); err != nil {
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
