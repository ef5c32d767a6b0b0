package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// ErrEngineDied is returned by Run when the engine has stopped without being asked to. All its
// connections are closed. The error text has what gnet logged last, such as that there are too many
// open files.
var ErrEngineDied = errors.New("server: the gnet engine died")

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// healthyLife is the life of an engine after which its death is not a consequence of the death
	// of the one before.
	healthyLife = time.Minute
)

// A backoff is the pause between engines.
type backoff struct {
	deaths int           // of engines
	pause  time.Duration // before the last restart
}

// next returns the pause before the next engine, after one that has lived for some time.
func (b *backoff) next(lived time.Duration) time.Duration {
	b.deaths++
	b.pause = min(max(2*b.pause, minPause), maxPause)
	if lived >= healthyLife {
		b.pause = minPause
	}
	return b.pause
}

// serve runs one engine, or one after the other, until the server is to stop.
func (s *Server) serve() error {
	for s.serving.Err() == nil {
		began := time.Now()
		err := s.runEngine()
		// A later engine also counts as dead if it could not be started.
		died := errors.Is(err, ErrEngineDied) || err != nil && s.backoff.deaths > 0
		if !s.cfg.Restart || !died || s.serving.Err() != nil {
			return err
		}
		pause := s.backoff.next(time.Since(began))
		s.cfg.Logger.Error("the engine has died and is started again", "cause", err, "restarts", s.backoff.deaths, "after", pause)
		if !sleep(s.serving, pause) {
			break
		}
		s.restarts.Add(1)
	}
	return nil
}

// runEngine runs one engine until it stops.
func (s *Server) runEngine() error {
	set := s.setup()
	urls := urlsOf(set.addrs)
	if s.restarts.Load() > 0 { // another process may have taken an address
		if _, err := claimAll(urls, s.cfg.ReusePort); err != nil {
			return err
		}
	}
	running, returned := context.WithCancel(context.Background()) // until gnet.Rotate returns
	defer returned()
	opened := s.openAlone()
	defer opened()
	var stopped bool // by stopWhenAsked
	var helpers sync.WaitGroup
	h := newEngineHandler(s, func(h *engineHandler, eng gnet.Engine) {
		helpers.Go(func() { stopped = s.stopWhenAsked(running, h, eng) })
		helpers.Go(func() { h.watchDescriptors(running, opened) })
		if s.cfg.PressureTimeout > 0 {
			helpers.Go(func() { h.scaleTimeouts(running, s.cfg.PressureTimeout) })
		}
		s.engine.Store(h)
		if s.cfg.OnStarted != nil {
			s.cfg.OnStarted(s)
		}
	})
	log := &engineLog{Logger: s.cfg.Logger}
	err := gnet.Rotate(h, urls, s.options(log)...)
	returned()
	helpers.Wait()
	h.pauser.Stop()
	h.pauser.Forget()
	h.shortage.end(s.reaper)
	s.engine.Store(nil)
	switch {
	case err != nil:
		return fmt.Errorf("server: running on %s: %w", join(set.addrs), err)
	case !stopped && !s.handler.shutdown.Load():
		return fmt.Errorf("%w on %s: %s", ErrEngineDied, join(set.addrs), log.lastErrors())
	}
	return nil
}

// options returns the options of an engine.
func (s *Server) options(log *engineLog) []gnet.Option {
	return append([]gnet.Option{
		gnet.WithLogger(log),
		gnet.WithNumEventLoop(s.cfg.NumEventLoop),
		gnet.WithReuseAddr(true),
		gnet.WithReusePort(!s.setup().oneAcceptor),
	}, s.cfg.Options...)
}

// stopWhenAsked drains and stops an engine when the server is to stop. It reports whether it did,
// and returns false if the engine has stopped by itself.
func (s *Server) stopWhenAsked(running context.Context, h *engineHandler, eng gnet.Engine) bool {
	select {
	case <-s.serving.Done():
	case <-running.Done():
		return false
	}
	draining, end := context.WithCancel(running)
	defer end()
	defer context.AfterFunc(s.draining, end)()
	h.drain(draining, s.cfg.Drain)
	stopped := running.Err() == nil
	_ = eng.Stop(running) // an error means that it has stopped already
	return stopped
}

// opening has one element while an engine of this process that shares its port opens its listeners.
var opening = make(chan struct{}, 1)

// openTimeout is the time in which an engine is expected to open its listeners.
const openTimeout = 5 * time.Second

// openAlone waits until no other engine of this process that shares its port is opening its
// listeners. The caller calls done, once or more, when this engine has opened its own.
func (s *Server) openAlone() (done func()) {
	if !s.cfg.ReusePort {
		return func() {}
	}
	select {
	case opening <- struct{}{}:
		return sync.OnceFunc(func() { <-opening })
	case <-s.serving.Done():
	// The Pauser of the other engine takes the listeners that are open by now.
	case <-time.After(openTimeout):
	}
	return func() {}
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
