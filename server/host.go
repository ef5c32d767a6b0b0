package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// A host is the Reaper as the engine sees it: it notes when the engine boots, and pauses accepting while there is no room.
type host struct {
	*idle.Reaper
	booted func(gnet.Engine)
	gate   *gate
	door   *door
	log    *slog.Logger
	limit  int           // of connections; 0 for none
	full   int           // descriptor from which on there is no room, 0 if not known
	taken  int           // descriptors in use before the server started
	look   time.Duration // how often is looked for that descriptor
	shares bool          // another process may listen on the port

	draining atomic.Bool  // nobody is accepted any more
	lowered  atomic.Int64 // the MaxConnections that a shortage of descriptors has set, 0 if none
}

func newHost(s *Server) *host {
	h := &host{
		Reaper: s.reaper, door: s.door, log: s.cfg.Logger, limit: s.limit, full: s.budget.full(), taken: s.budget.inUse, look: s.budget.look(),
		shares: s.cfg.SharePort,
	}
	h.gate = newGate(s.at, s.listeners(), s.cfg.Logger, h.hasRoom, &s.pauses)
	return h
}

func (h *host) OnBoot(eng gnet.Engine) gnet.Action {
	action := h.Reaper.OnBoot(eng)
	if action != gnet.Shutdown { // otherwise gnet.Run returns at once
		h.booted(eng)
	}
	return action
}

func (h *host) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	h.gate.prepare(true)
	if h.gate.used.Load() {
		_ = unfilter(c.Fd()) // it may have none
	}
	// The kernel gives out the lowest descriptor that is free, so this one tells how many are in use at least. Who has one of the last
	// goes, whatever else is true, so that each loop can accept and close what comes until the gate is shut.
	if fd := c.Fd(); h.full > 0 && fd >= h.full {
		h.shutFull()
		h.door.turnAway(c, noDescriptors, "no descriptors are left")
		return nil, gnet.Close
	}
	if !h.door.admit(c) {
		return nil, gnet.Close
	}
	out, action := h.Reaper.OnOpen(c)
	if h.limit > 0 && h.Connections() >= h.limit {
		h.gate.shut(fmt.Sprintf("%d connections are open, as many as may be", h.limit), func() {})
	}
	return out, action
}

// OnClose forwards, but for those that were not let in.
func (h *host) OnClose(c gnet.Conn, err error) gnet.Action {
	if !h.door.leave(c) {
		return gnet.None
	}
	return h.Reaper.OnClose(c, err)
}

// shutFull pauses because of descriptors that may be in use elsewhere in the process: connections make room for those.
func (h *host) shutFull() {
	h.gate.shut(fmt.Sprintf("few descriptors are left of those below %d", h.full+reserve/2), func() {
		if n := h.Connections(); n < h.limit {
			h.lowered.Store(int64(max(n, 1)))
			h.setMaxConnections(max(n, 1))
		}
	})
}

// setMaxConnections changes the limit of the Reaper.
func (h *host) setMaxConnections(n int) {
	if h.Config().MaxConnections != n {
		_ = h.Update(func(cfg *idle.Config) { cfg.MaxConnections = n }) // the rest was checked before
	}
}

// guard looks whether descriptors run short although nobody comes: whoever comes next may be the one too many. It begins with finding the
// listeners, and calls found then.
func (h *host) guard(ctx context.Context, found func()) {
	began := time.Now()
	for !h.gate.prepare(time.Since(began) > bootTime) {
		if !sleep(ctx, time.Millisecond) {
			return
		}
	}
	found()
	if h.full == 0 {
		return
	}
	for sleep(ctx, h.look) {
		if fd, ok := freeDescriptor(); !ok || fd >= h.full {
			h.shutFull()
		}
	}
}

// hasRoom reports whether there is enough room again: some more than one, so that it does not go up and down.
func (h *host) hasRoom() bool {
	if h.draining.Load() && h.gate.isDropping() {
		return false
	}
	if h.full > 0 {
		if fd, ok := freeDescriptor(); !ok || fd >= h.full-reserve/4 {
			return false
		}
	}
	if lowered := int(h.lowered.Swap(0)); lowered != 0 && h.Config().MaxConnections == lowered { // no Update came in between
		h.setMaxConnections(h.limit)
	}
	return h.limit == 0 || h.Connections() <= h.limit-max(h.limit/32, 1)
}

// OnShutdown leaves the listeners alone from here on: gnet is about to close them.
func (h *host) OnShutdown(eng gnet.Engine) {
	h.gate.end()
	h.Reaper.OnShutdown(eng)
}
