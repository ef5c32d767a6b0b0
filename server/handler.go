package server

import (
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// A watchedHandler is the handler of the user. It records that the handler has asked for a
// shutdown: gnet returns nil in that case, and also when the engine has died.
type watchedHandler struct {
	gnet.EventHandler
	shutdown atomic.Bool
}

func (w *watchedHandler) record(action gnet.Action) gnet.Action {
	if action == gnet.Shutdown {
		w.shutdown.Store(true)
	}
	return action
}

func (w *watchedHandler) OnBoot(eng gnet.Engine) gnet.Action {
	return w.record(w.EventHandler.OnBoot(eng))
}

func (w *watchedHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	out, action := w.EventHandler.OnOpen(c)
	return out, w.record(action)
}

func (w *watchedHandler) OnTraffic(c gnet.Conn) gnet.Action {
	return w.record(w.EventHandler.OnTraffic(c))
}

func (w *watchedHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	return w.record(w.EventHandler.OnClose(c, err))
}

func (w *watchedHandler) OnTick() (time.Duration, gnet.Action) {
	delay, action := w.EventHandler.OnTick()
	return delay, w.record(action)
}

// watch returns a Config with an OnIdle that is watched as well.
func (w *watchedHandler) watch(cfg idle.Config) idle.Config {
	if onIdle := cfg.OnIdle; onIdle != nil {
		cfg.OnIdle = func(c gnet.Conn, ev idle.Event) gnet.Action { return w.record(onIdle(c, ev)) }
	}
	return cfg
}
