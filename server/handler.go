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

// observe returns a Config whose OnIdle is watched as well.
func (w *watched) observe(cfg idle.Config) idle.Config {
	if onIdle := cfg.OnIdle; onIdle != nil {
		cfg.OnIdle = func(c gnet.Conn, ev idle.Event) gnet.Action { return w.note(onIdle(c, ev)) }
	}
	return cfg
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
