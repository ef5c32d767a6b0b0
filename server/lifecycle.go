package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/panjf2000/gnet/v2"
)

// ErrServerClosed is returned by Run after a call of Shutdown or Close.
var ErrServerClosed = errors.New("server: closed")

// errNoListener is the cause when other code has closed all listeners.
var errNoListener = errors.New("server: all listeners were closed, and not by the server")

// Run listens and serves until ctx is done, the handler returns gnet.Shutdown, or Shutdown or Close
// is called. When ctx is done it closes all connections as Config.Drain says, and a call of Close
// ends the drain. It returns when all connections and all goroutines of the Server are gone.
//
// The error is nil if ctx or the handler has stopped the Server, and ErrServerClosed if Shutdown or
// Close has. An address that cannot be listened on is an error with that address. ErrEngineDied
// means that an event loop has stopped without being asked to. Then clients that waited for that
// loop, and the goroutines that wait with them, are left until the process ends. If other code
// closes all listeners, Run closes the connections as Config.Drain says and returns an error.
//
// A Server runs once. During a call of Run a second one returns an error, and after it
// ErrServerClosed. Several Servers may run at the same time. gnet has one logger per process: the
// Logger of the Server that was started last.
func (s *Server) Run(ctx context.Context) error {
	if err := s.start(); err != nil {
		return err
	}
	defer close(s.down)
	defer s.flushLogs()
	defer s.closeListeners()
	if ctx.Err() != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { s.stop(ctx.Err()) })()
	cfg := s.cfg
	cfg.Idle.MaxConnections = s.reaper.Config().MaxConnections // an Update may have changed it
	set, err := newSetup(s.serving, &cfg)
	s.setup.Store(set)
	if err != nil {
		if errors.Is(err, context.Canceled) { // stopped during the look-up of a name
			return s.result()
		}
		return err
	}
	if s.adminSite != nil {
		if err := s.adminSite.listen(); err != nil {
			return err
		}
		defer s.adminSite.close()
	}
	return cmp.Or(s.serve(set), s.result())
}

// result returns what Run returns after it was asked to stop.
func (s *Server) result() error {
	if cause := context.Cause(s.serving); cause == ErrServerClosed || cause == errNoListener {
		return cause
	}
	return nil
}

func (s *Server) start() error {
	if s.started.CompareAndSwap(false, true) {
		return nil
	}
	select {
	case <-s.down:
		return ErrServerClosed
	default:
		return errors.New("server: Run was called twice")
	}
}

// serve runs the event loops until the server is to stop.
func (s *Server) serve(set *setup) error {
	helping, end := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	s.cfg.Logger.Info("serving", "config", s.cfg, "idle", s.reaper.Config(), "limit", set.limit, "because", set.budget.why(set.limit))
	changeMaxConnections(s.reaper, set.budget.bound)
	helpers.Go(func() { (&reporter{log: s.cfg.Logger, stats: s.reaper.Stats, admission: s.admission}).run(helping) })
	if s.cfg.Handler.OnBoot(gnet.Engine{}) == gnet.Shutdown {
		return nil
	}
	acceptors := newAcceptors(&s.cfg, set, s.reaper, s.admission, &s.pauses)
	eng, err := newEngine(&engineHandler{Reaper: s.reaper, acceptors: acceptors, stop: s.stop}, &s.cfg)
	if err != nil {
		return err
	}
	s.acceptors.Store(acceptors)
	// OnBoot or an Update may have raised it.
	acceptors.room.widen(set.budget.bound(s.reaper.Config().MaxConnections))
	defer s.acceptors.Store(nil)
	if s.cfg.OnStarted != nil {
		s.cfg.OnStarted(s)
	}
	if s.cfg.PressureTimeout > 0 {
		helpers.Go(func() { set.scaleTimeouts(helping, s.reaper, s.cfg.PressureTimeout, s.cfg.Logger) })
	}
	acceptors.start(eng.loops)
	s.drainWhenAsked(acceptors, eng.log.alive)
	acceptors.stop(true)
	acceptors.wait(eng.log.alive)
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
func (s *Server) drainWhenAsked(a *acceptors, alive context.Context) {
	select {
	case <-s.serving.Done():
	case <-a.ended:
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
	a.drain(draining, s.cfg.Drain)
}

// Shutdown closes all connections as Config.Drain says. It returns nil when all of them are closed
// and Run is about to return ErrServerClosed. If ctx is done before, the remaining connections are
// closed at once, as by Close, and Shutdown returns the error of ctx. Before Run it returns at
// once, and Run returns ErrServerClosed.
//
// It must not be called on an event loop, which it would wait for: return gnet.Shutdown there.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endServing()
	select {
	case <-s.down:
	case <-ctx.Done():
	}
	select {
	case <-s.down: // also if ctx is done, which has cut off no connection then
		return nil
	default:
	}
	s.cut()
	<-s.down
	return ctx.Err()
}

// Close closes all connections at once, and ends a drain that has begun. Otherwise it is like
// Shutdown. The error is always nil.
func (s *Server) Close() error {
	s.endServing()
	s.cut()
	<-s.down
	return nil
}

// endServing tells Run to return ErrServerClosed.
func (s *Server) endServing() {
	s.stop(ErrServerClosed)
	if s.start() == nil { // Run was not called
		s.closeListeners()
		close(s.down)
	}
}

// flushLogs waits until all records are written, but at most a second for each queue.
func (s *Server) flushLogs() {
	for _, queue := range s.logQueues() {
		queue.Flush()
	}
}

// closeListeners closes the listeners, those that have not been used included.
func (s *Server) closeListeners() {
	for _, ln := range slices.Concat(s.setup.Load().listeners, s.cfg.Listeners) {
		_ = ln.Close()
	}
}

// RunUntilSignal is Run until the process gets SIGINT or SIGTERM. The first signal stops the server
// as if ctx were done, and the second ends the drain, as Close does. A third signal ends the
// process, and so does a signal after RunUntilSignal has returned.
func (s *Server) RunUntilSignal(ctx context.Context) error {
	signals := make(chan os.Signal, 2) // the second may arrive before the first is received
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	returned := make(chan struct{})
	defer close(returned)
	go func() {
		defer signal.Stop(signals)
		for _, do := range []func(){cancel, s.cut} {
			select {
			case <-signals:
				do()
			case <-returned:
			}
		}
	}()
	return s.Run(ctx)
}
