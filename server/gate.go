package server

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// gateLook is how often is looked whether a closed gate can be opened.
const gateLook = 20 * time.Millisecond

// A gate stops accepting while there is no room, and goes on when there is. While it is closed the system drops what asks for a
// connection, and the client asks again, first after a second. Safe for concurrent use.
type gate struct {
	addr address
	log  *slog.Logger
	room func() bool // reports whether there is room enough to go on

	ready  atomic.Bool // fds does not change any more
	closed atomic.Bool
	done   chan struct{} // closed by end
	wait   sync.WaitGroup

	mu    sync.Mutex
	fds   []int // guarded by mu until ready; listening sockets, none if they cannot be paused
	ended bool  // guarded by mu: the listeners may be gone
}

func newGate(addr address, log *slog.Logger, room func() bool) *gate {
	return &gate{addr: addr, log: log, room: room, done: make(chan struct{})}
}

// prepare finds the listening sockets, which takes a descriptor that may not be there later, or just now: then the next call tries
// again. The engine has them all by the time that the first connection comes.
func (g *gate) prepare() {
	if g.ready.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() {
		return
	}
	fds, err := listeners(g.addr)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return
	}
	if err != nil {
		g.log.Warn("accepting cannot be paused: who comes when there is no room is refused", "because", err)
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
	g.log.Warn("accepting is paused", "because", why)
	g.wait.Go(g.watch)
}

// watch opens the gate when there is room.
func (g *gate) watch() {
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
	g.log.Info("accepting goes on", "after", time.Since(began))
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
