package server

import (
	"log/slog"
	"sync"
	"sync/atomic"
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

	find   sync.Once
	fds    []int // listening sockets; written by find
	closed atomic.Bool
	pauses atomic.Int64  // how many times it was closed
	done   chan struct{} // closed by end
	wait   sync.WaitGroup

	mu    sync.Mutex
	ended bool // guarded by mu: the listeners may be gone
}

func newGate(addr address, log *slog.Logger, room func() bool) *gate {
	return &gate{addr: addr, log: log, room: room, done: make(chan struct{})}
}

// prepare finds the listening sockets, which takes descriptors that may not be there later. The engine has them all by the time
// that the first connection comes.
func (g *gate) prepare() {
	g.find.Do(func() {
		var err error
		if g.fds, err = listeners(g.addr); err != nil {
			g.log.Warn("accepting cannot be paused: who comes when there is no room is refused", "because", err)
		}
	})
}

// shut closes the gate until there is room. If it was open, it calls first before anybody looks for room.
func (g *gate) shut(why string, first func()) {
	if len(g.fds) == 0 || g.closed.Swap(true) {
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
	g.pauses.Add(1)
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
