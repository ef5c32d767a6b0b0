package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server/internal/accept"
	"github.com/idlewheel/idlewheel/server/internal/descriptor"
)

// An engineHandler is the outermost handler of one engine. It rejects connections before the Reaper
// sees them, and pauses accepting while there is no room.
type engineHandler struct {
	*idle.Reaper
	booted    func(*engineHandler, gnet.Engine)
	pauser    *accept.Pauser
	admission *admission
	log       *slog.Logger
	limit     int           // of connections; 0 if there is none
	full      int           // descriptor from which on there is no room; 0 if not known
	inUse     int           // descriptors in use before the server started
	poll      time.Duration // interval at which the lowest free descriptor is checked
	reusePort bool

	draining atomic.Bool // new connections are not served any more
	shortage shortage
}

// newEngineHandler returns the handler of an engine that is about to boot. It calls booted on the
// goroutine of gnet.Rotate.
func newEngineHandler(s *Server, booted func(*engineHandler, gnet.Engine)) *engineHandler {
	set := s.setup()
	h := &engineHandler{
		Reaper: s.reaper, booted: booted, admission: s.admission, log: s.cfg.Logger, limit: set.limit,
		full: set.budget.full(), inUse: set.budget.inUse, poll: set.budget.pollInterval(), reusePort: s.cfg.ReusePort,
	}
	cfg := accept.Config{Addrs: s.Addrs(), Logger: h.log, HasRoom: h.hasRoom, Pauses: &s.pauses}
	for _, addr := range cfg.Addrs {
		if _, ok := addr.(*net.TCPAddr); ok {
			cfg.Listeners += s.cfg.listeners(set.oneAcceptor)
		}
	}
	h.pauser = accept.NewPauser(cfg)
	return h
}

func (h *engineHandler) OnBoot(eng gnet.Engine) gnet.Action {
	action := h.Reaper.OnBoot(eng)
	if action != gnet.Shutdown { // otherwise gnet.Rotate returns at once
		h.booted(h, eng)
	}
	return action
}

func (h *engineHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	h.pauser.Find(true)
	if h.pauser.WasPaused() {
		_ = accept.Unfilter(c.Fd()) // there may be none
	}
	// The kernel gives out the lowest free descriptor, so at least as many are in use. A connection
	// with one of the last descriptors is closed in any case, so that each loop can accept and
	// close connections until accepting is paused.
	if fd := c.Fd(); h.full > 0 && fd >= h.full {
		h.pauseFull()
		h.admission.reject(c, noDescriptors, "no descriptors are left")
		return nil, gnet.Close
	}
	if !h.admission.admit(c) {
		return nil, gnet.Close
	}
	out, action := h.Reaper.OnOpen(c)
	if h.limit > 0 && h.Connections() >= h.limit {
		h.pauser.Pause(fmt.Sprintf("%d connections are open, the limit", h.limit), func() {})
	}
	return out, action
}

// OnClose forwards to the Reaper, except for rejected connections.
func (h *engineHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	if !h.admission.release(c) {
		return gnet.None
	}
	return h.Reaper.OnClose(c, err)
}

// OnShutdown stops the Pauser: gnet is about to close the listeners.
func (h *engineHandler) OnShutdown(eng gnet.Engine) {
	h.pauser.Stop()
	h.Reaper.OnShutdown(eng)
}

// pauseFull pauses accepting because few descriptors are left. Other parts of the process may use
// them: the limit of connections is lowered to their present number, so that the Reaper makes room.
func (h *engineHandler) pauseFull() {
	h.pauser.Pause(fmt.Sprintf("few descriptors are left of those below %d", h.full+reserve/2), func() {
		h.shortage.begin(h.Reaper)
	})
}

// watchDescriptors finds the listeners, calls found, and then pauses accepting whenever descriptors
// run short. OnOpen alone would be too late for descriptors that other parts of the process take.
func (h *engineHandler) watchDescriptors(ctx context.Context, found func()) {
	began := time.Now()
	for !h.pauser.Find(time.Since(began) > openTimeout) {
		if !sleep(ctx, time.Millisecond) {
			return
		}
	}
	found()
	if h.full == 0 {
		return
	}
	for sleep(ctx, h.poll) {
		if fd, ok := descriptor.LowestFree(); !ok || fd >= h.full {
			h.pauseFull()
		}
	}
}

// hasRoom reports whether accepting can resume. It wants room for more than one connection, so that
// accepting is not paused and resumed all the time.
func (h *engineHandler) hasRoom() bool {
	if h.draining.Load() && h.pauser.DropsAll() {
		return false
	}
	if h.full > 0 {
		if fd, ok := descriptor.LowestFree(); !ok || fd >= h.full-reserve/4 {
			return false
		}
	}
	h.shortage.end(h.Reaper)
	return h.limit == 0 || h.Connections() <= h.limit-max(h.limit/32, 1)
}
