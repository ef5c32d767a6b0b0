package server

import (
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// A watchedHandler is the handler of the user. It stops the server when the handler asks for it.
// gnet would stop one event loop and not tell.
type watchedHandler struct {
	gnet.EventHandler
	stop func()
}

// watch returns what gnet is to do.
func (w *watchedHandler) watch(action gnet.Action) gnet.Action {
	if action != gnet.Shutdown {
		return action
	}
	w.stop()
	return gnet.None
}

func (w *watchedHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	out, action := w.EventHandler.OnOpen(c)
	return out, w.watch(action)
}

func (w *watchedHandler) OnTraffic(c gnet.Conn) gnet.Action {
	return w.watch(w.EventHandler.OnTraffic(c))
}

func (w *watchedHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	return w.watch(w.EventHandler.OnClose(c, err))
}

func (w *watchedHandler) OnTick() (time.Duration, gnet.Action) {
	delay, action := w.EventHandler.OnTick()
	return delay, w.watch(action)
}

// watchIdle returns a Config with an OnIdle that is watched as well.
func (w *watchedHandler) watchIdle(cfg idle.Config) idle.Config {
	if onIdle := cfg.OnIdle; onIdle != nil {
		cfg.OnIdle = func(c gnet.Conn, ev idle.Event) gnet.Action { return w.watch(onIdle(c, ev)) }
	}
	return cfg
}
