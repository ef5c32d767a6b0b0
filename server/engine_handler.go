package server

import (
	"context"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// An engineHandler is the outermost handler of the event loops. It tells the acceptors which
// connections are open.
type engineHandler struct {
	*idle.Reaper
	acceptors *acceptors
	inUse     int // descriptors in use before the server started

	draining atomic.Bool // accepting has ended
}

// newEngineHandler returns the handler of the event loops of a Server.
func newEngineHandler(s *Server) *engineHandler {
	set := s.setup()
	a := &acceptors{
		listeners: set.listeners, admission: s.admission, reaper: s.reaper, log: s.cfg.Logger, pauses: &s.pauses,
		limit: set.limit, full: set.budget.full(), delay: s.cfg.gnetOptions().TCPNoDelay == gnet.TCPDelay,
	}
	a.room.resize(a.limit)
	a.accepting, a.end = context.WithCancel(context.Background())
	return &engineHandler{Reaper: s.reaper, acceptors: a, inUse: set.budget.inUse}
}

// OnBoot does nothing: each event loop calls it, and the handler boots once.
func (h *engineHandler) OnBoot(gnet.Engine) gnet.Action { return gnet.None }

// OnShutdown does nothing, as OnBoot.
func (h *engineHandler) OnShutdown(gnet.Engine) {}

func (h *engineHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.Context().(*entry).opened = true
	c.SetContext(nil)
	return h.Reaper.OnOpen(c)
}

func (h *engineHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	action := h.Reaper.OnClose(c, err)
	h.acceptors.leave(addrOf(c.RemoteAddr()))
	return action
}
