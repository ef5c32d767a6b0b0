package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// ErrEngineDied is returned by Run when an event loop has stopped without being asked to. All
// connections are closed. The error text has what gnet logged last.
var ErrEngineDied = errors.New("server: the gnet engine died")

// errShutdown is the cause when the handler stops the server.
var errShutdown = errors.New("the handler has returned gnet.Shutdown")

// errNoListener is the cause when other code has closed all listeners.
var errNoListener = errors.New("server: all listeners were closed, and not by the server")

// An engine is the event loops of a Server. Each of them is a gnet.Client with one loop, and has
// acceptors of its own. A loop that is blocked delays its own connections only: a gnet.Client with
// several loops gives a connection to the loop with the fewest, and waits for it.
type engine struct {
	loops []*gnet.Client
	log   *engineLog
}

// newEngine starts event loops, or none and returns an error.
func newEngine(h gnet.EventHandler, cfg *Config) (*engine, error) {
	e := &engine{log: newEngineLog(cfg.Logger)}
	for i := range cfg.NumEventLoop {
		// Package net has switched Nagle's algorithm off.
		opts := append(slices.Clone(cfg.Options),
			gnet.WithLogger(e.log), gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPDelay))
		if i > 0 { // OnTick is for one loop
			opts = append(opts, gnet.WithTicker(false))
		}
		loop, err := gnet.NewClient(h, opts...)
		if err == nil {
			err = loop.Start()
		}
		if err != nil {
			e.stop()
			return nil, fmt.Errorf("server: starting an event loop: %w", err)
		}
		e.loops = append(e.loops, loop)
	}
	return e, nil
}

// stop closes all connections and stops the event loops.
func (e *engine) stop() {
	var stopping sync.WaitGroup
	for _, loop := range e.loops {
		stopping.Go(func() { _ = loop.Stop() }) // the log has the error
	}
	stopping.Wait()
}

// serve runs the event loops until the server is to stop.
func (s *Server) serve() error {
	helping, end := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	s.logStart()
	helpers.Go(func() { (&reporter{log: s.cfg.Logger}).run(helping, s) })
	if s.cfg.Handler.OnBoot(gnet.Engine{}) == gnet.Shutdown {
		return nil
	}
	h := &engineHandler{Reaper: s.reaper, server: s, acceptors: newAcceptors(s)}
	eng, err := newEngine(h, &s.cfg)
	if err != nil {
		return err
	}
	s.engine.Store(h)
	defer s.engine.Store(nil)
	if s.cfg.OnStarted != nil {
		s.cfg.OnStarted(s)
	}
	if s.cfg.PressureTimeout > 0 {
		helpers.Go(func() { h.scaleTimeouts(helping, s.cfg.PressureTimeout) })
	}
	h.acceptors.start(eng.loops)
	s.drainWhenAsked(h, eng.log.alive)
	h.acceptors.stop(true)
	h.acceptors.wait(eng.log.alive)
	died := eng.log.alive.Err() != nil
	s.cfg.Handler.OnShutdown(gnet.Engine{})
	eng.stop()
	if died {
		return fmt.Errorf("%w on %s: %s", ErrEngineDied, join(s.Addrs()), eng.log.lastErrors())
	}
	return nil
}

// drainWhenAsked waits until the server is to stop, or no listener is left, and drains then. It
// returns at once when an event loop has died.
func (s *Server) drainWhenAsked(h *engineHandler, alive context.Context) {
	select {
	case <-s.serving.Done():
	case <-h.acceptors.ended:
		s.stop(errNoListener)
	case <-alive.Done():
		return
	}
	if context.Cause(s.serving) == errShutdown {
		return
	}
	draining, end := context.WithCancel(s.draining)
	defer end()
	defer context.AfterFunc(alive, end)()
	h.drain(draining, s.cfg.Drain)
}

// An engineHandler is the outermost handler of the event loops. It tells the acceptors which
// connections are open, and stops the server when the handler asks for it: gnet would stop one
// event loop and not tell.
type engineHandler struct {
	*idle.Reaper
	server    *Server
	acceptors *acceptors
	// registered are the connections that the handler itself has given to an event loop, by
	// Register or Enroll. They need no room.
	registered sync.Map // of gnet.Conn
}

// watch returns the Action for gnet. It stops the Server instead of one event loop.
func (s *Server) watch(action gnet.Action) gnet.Action {
	if action == gnet.Shutdown {
		s.stop(errShutdown)
		return gnet.None
	}
	return action
}

// OnBoot does nothing: each event loop calls it, and the handler boots once.
func (h *engineHandler) OnBoot(gnet.Engine) gnet.Action { return gnet.None }

// OnShutdown does nothing, as OnBoot.
func (h *engineHandler) OnShutdown(gnet.Engine) {}

func (h *engineHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if e, ok := c.Context().(*entry); ok {
		e.opened, e.descriptor = true, c.Fd()
		c.SetContext(nil)
		c.SetSafeContext(nil)
	} else {
		h.registered.Store(c, nil)
	}
	out, action := h.Reaper.OnOpen(c)
	return out, h.server.watch(action)
}

func (h *engineHandler) OnTraffic(c gnet.Conn) gnet.Action {
	return h.server.watch(h.Reaper.OnTraffic(c))
}

func (h *engineHandler) OnTick() (time.Duration, gnet.Action) {
	delay, action := h.Reaper.OnTick()
	return delay, h.server.watch(action)
}

func (h *engineHandler) OnClose(c gnet.Conn, err error) gnet.Action {
	action := h.Reaper.OnClose(c, err)
	if _, ok := h.registered.LoadAndDelete(c); !ok {
		h.acceptors.leave(sourcelimit.AddrOf(c.RemoteAddr()))
	}
	return h.server.watch(action)
}

// sleep waits, and reports whether the time has passed before the context was done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
