package server

import (
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// A watched is a handler whose wish to shut down is noted: gnet.Run returns nil both when the handler has asked for it
// and when the engine died.
type watched struct {
	gnet.EventHandler
	shutdown atomic.Bool
}

func watch(h gnet.EventHandler) *watched { return &watched{EventHandler: h} }

// handler returns the watched handler, which implements idle.IdleHandler if the original does.
func (w *watched) handler() gnet.EventHandler {
	if decider, ok := w.EventHandler.(idle.IdleHandler); ok {
		return &watchedDecider{w, decider}
	}
	return w
}

func (w *watched) note(action gnet.Action) gnet.Action {
	if action == gnet.Shutdown {
		w.shutdown.Store(true)
	}
	return action
}

func (w *watched) OnBoot(eng gnet.Engine) gnet.Action { return w.note(w.EventHandler.OnBoot(eng)) }

func (w *watched) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	out, action := w.EventHandler.OnOpen(c)
	return out, w.note(action)
}

func (w *watched) OnTraffic(c gnet.Conn) gnet.Action { return w.note(w.EventHandler.OnTraffic(c)) }

func (w *watched) OnClose(c gnet.Conn, err error) gnet.Action {
	return w.note(w.EventHandler.OnClose(c, err))
}

func (w *watched) OnTick() (time.Duration, gnet.Action) {
	delay, action := w.EventHandler.OnTick()
	return delay, w.note(action)
}

// watchedDecider is a watched that decides about idle connections.
type watchedDecider struct {
	*watched
	decider idle.IdleHandler
}

func (w *watchedDecider) OnIdle(c gnet.Conn, ev idle.Event) gnet.Action {
	return w.note(w.decider.OnIdle(c, ev))
}
