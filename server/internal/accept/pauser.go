package accept

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idlewheel/idlewheel/internal/ratelog"
)

// pollInterval is the interval at which a Pauser checks whether accepting can resume.
const pollInterval = 20 * time.Millisecond

// Config is what a Pauser needs to know. All fields are required.
type Config struct {
	Addrs     []net.Addr   // that the engine listens on
	Listeners int          // TCP sockets that the engine opens
	Logger    *slog.Logger // at most one line per second for each kind of event

	// HasRoom reports whether there is enough room to resume. A goroutine of the Pauser calls it
	// every 20 ms while accepting is paused.
	HasRoom func() bool

	Pauses *atomic.Uint64 // counts the pauses; the engines of a server share it
}

// A Pauser pauses accepting while there is no room, and resumes it when there is. Safe for
// concurrent use.
type Pauser struct {
	cfg     Config
	warning ratelog.Limiter

	found      atomic.Bool // sockets does not change any more
	paused     atomic.Bool
	everPaused atomic.Bool
	stopped    chan struct{} // closed by Stop
	polling    sync.WaitGroup

	mu      sync.Mutex
	sockets listeners // guarded by mu until found is true; empty if they cannot be paused
	ended   bool      // guarded by mu; the sockets may be closed
	forGood bool      // guarded by mu; accepting does not resume
}

// pausers are the Pausers of this process. Several engines may listen on one port, and each Pauser
// pauses the sockets of its own engine only. Engines that share a port open their sockets one after
// the other, so that each Pauser takes the sockets that no other Pauser has taken.
var pausers struct {
	mu  sync.Mutex // taken before the mutex of a Pauser
	all []*Pauser  // guarded by mu
}

// NewPauser returns the Pauser of an engine that is about to open its sockets. The caller calls
// Stop before the sockets are closed, and Forget afterwards.
func NewPauser(cfg Config) *Pauser {
	p := &Pauser{cfg: cfg, stopped: make(chan struct{})}
	pausers.mu.Lock()
	defer pausers.mu.Unlock()
	pausers.all = append(pausers.all, p)
	return p
}

// Forget gives up the sockets, which are closed.
func (p *Pauser) Forget() {
	pausers.mu.Lock()
	defer pausers.mu.Unlock()
	pausers.all = slices.DeleteFunc(pausers.all, func(other *Pauser) bool { return other == p })
}

// Find finds the sockets, and reports whether it is done. The engine opens them one by one, and all
// of them before the first connection. If all is true, Find takes the sockets that are there. Find
// needs a free descriptor, which may be missing later or just now.
func (p *Pauser) Find(all bool) (done bool) {
	if p.found.Load() {
		return true
	}
	pausers.mu.Lock()
	defer pausers.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found.Load() || p.ended {
		return true
	}
	fds, err := find(p.cfg.Addrs)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return false
	}
	fds = p.withoutThoseOfOthers(fds)
	if len(fds) < p.cfg.Listeners && !all && !errors.Is(err, errCannotPause) {
		return false
	}
	var sockets listeners
	if err == nil {
		// If newListeners fails, the engine may not have told its pollers yet.
		if sockets, err = newListeners(fds); err != nil && !all {
			return false
		}
	}
	switch {
	case errors.Is(err, errCannotPause):
	case err != nil:
		p.cfg.Logger.Warn("accepting cannot be paused: connections above the limit are closed after they are accepted", "because", err)
		sockets = listeners{}
	case !sockets.dropsAll():
		p.cfg.Logger.Info("without CAP_NET_ADMIN: accepting is paused by the pollers and a short backlog instead of a filter")
	}
	p.sockets = sockets
	p.found.Store(true)
	return true
}

// withoutThoseOfOthers removes the sockets that another Pauser has found. The caller holds the
// mutex of pausers.
func (p *Pauser) withoutThoseOfOthers(fds []int) []int {
	for _, other := range pausers.all {
		if other != p && other.found.Load() {
			fds = slices.DeleteFunc(fds, func(fd int) bool { return slices.Contains(other.sockets.fds, fd) })
		}
	}
	return fds
}

// errCannotPause means that the system cannot pause any of the addresses, as documented.
var errCannotPause = errors.New("only TCP on Linux can be paused")

// Pause pauses accepting until there is room. If it was not paused, Pause calls first before
// HasRoom is called. Where accepting cannot be paused, Pause does nothing else.
func (p *Pauser) Pause(why string, first func()) {
	if !p.found.Load() || p.paused.Swap(true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	first()
	p.pauseLocked()
	n := p.cfg.Pauses.Add(1)
	log := p.warning.Allow()
	if log {
		p.cfg.Logger.Warn("accepting is paused", "because", why, "pauses", n, "listeners", len(p.sockets.fds))
	}
	p.polling.Go(func() { p.resumeWhenRoom(log) })
}

// PauseForGood pauses accepting before the server stops, if all clients are dropped while it is
// paused. Otherwise accepting stays on, or resumes when there is room: a client that is closed at
// once can try another server, and a client that waits for its turn cannot.
func (p *Pauser) PauseForGood() {
	p.Find(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || !p.sockets.dropsAll() {
		return
	}
	p.forGood = true
	p.pauseLocked()
}

func (p *Pauser) pauseLocked() {
	p.everPaused.Store(true)
	if err := p.sockets.pause(); err != nil {
		p.cfg.Logger.Warn("pausing accept", "error", err)
	}
}

// IsPaused reports whether accepting is paused because there is no room.
func (p *Pauser) IsPaused() bool { return p.paused.Load() }

// WasPaused reports whether accepting was ever paused, so that a connection may have inherited the
// filter of its listener.
func (p *Pauser) WasPaused() bool { return p.everPaused.Load() }

// DropsAll reports whether all new clients are dropped while accepting is paused.
func (p *Pauser) DropsAll() bool { return p.found.Load() && p.sockets.dropsAll() }

// resumeWhenRoom resumes accepting when there is room, and logs that if log is true.
func (p *Pauser) resumeWhenRoom(log bool) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	began := time.Now()
	for !p.cfg.HasRoom() {
		select {
		case <-p.stopped:
			return
		case <-poll.C:
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.forGood {
		return
	}
	if err := p.sockets.resume(); err != nil {
		p.cfg.Logger.Error("accepting does not resume", "error", err)
	}
	p.paused.Store(false)
	if log {
		p.cfg.Logger.Warn("accepting resumes", "after", time.Since(began))
	}
}

// Stop leaves the sockets as they are and waits for the goroutine of the Pauser. It may be called
// more than once.
func (p *Pauser) Stop() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		close(p.stopped)
	}
	p.mu.Unlock()
	p.polling.Wait()
}
