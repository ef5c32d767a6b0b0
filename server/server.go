package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// ErrServerClosed is returned by Run after a call of Shutdown or Close.
var ErrServerClosed = errors.New("server: closed")

// A Server is event loops of gnet with a Reaper around their handler. Create it with [New]. Safe
// for concurrent use, also after Run has returned.
type Server struct {
	// Immutable after New.
	cfg       Config
	reaper    *idle.Reaper
	admission *admission
	adminSite *adminSite      // nil if there is no admin listener
	serving   context.Context // done when the server is to stop; the cause may be ErrServerClosed
	stop      context.CancelCauseFunc
	draining  context.Context // done when a drain is to end
	cut       context.CancelFunc
	down      chan struct{} // closed when Run has returned, or will never serve

	started  atomic.Bool                   // Run, Shutdown or Close was called
	prepared atomic.Pointer[setup]         // empty before Run
	engine   atomic.Pointer[engineHandler] // nil while no event loops run
	pauses   pauses                        // of accepting
	reloads  struct{ done, failed atomic.Uint64 }
}

// A setup is what Run finds out before the event loops start. It is immutable.
type setup struct {
	listeners []net.Listener
	budget    budget
	limit     int    // of connections; 0 if there is none
	why       string // the limit is not higher
}

// New returns a Server for a Config, or an error that wraps ErrBadConfig and joins all that is
// wrong with the Config. It opens nothing: the addresses are opened by Run. A Server that is not
// needed after all can be dropped.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, down: make(chan struct{})}
	s.prepared.Store(&setup{})
	if onIdle := cfg.Idle.OnIdle; onIdle != nil {
		cfg.Idle.OnIdle = func(c gnet.Conn, ev idle.Event) gnet.Action { return s.watch(onIdle(c, ev)) }
	}
	if s.reaper, err = idle.Middleware(cfg.Handler, cfg.Idle); err != nil {
		return nil, badConfig{err}
	}
	s.admission = newAdmission(&cfg)
	if s.adminSite, err = s.newAdminSite(); err != nil {
		return nil, badConfig{err}
	}
	s.serving, s.stop = context.WithCancelCause(context.Background())
	s.draining, s.cut = context.WithCancel(context.Background())
	return s, nil
}

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
	if err := s.prepare(); err != nil {
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
	return cmp.Or(s.serve(), s.result())
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

// prepare listens on the addresses and finds out how many connections there is room for.
func (s *Server) prepare() (err error) {
	var set setup
	if set.listeners, err = listenAll(s.serving, s.cfg.Addresses, s.cfg.ReusePort); err != nil {
		return err
	}
	set.listeners = append(set.listeners, s.cfg.Listeners...)
	if set.budget, err = newBudget(&s.cfg, len(set.listeners)); err == nil {
		set.limit, set.why, err = set.budget.connections()
	}
	s.prepared.Store(&set)
	if err != nil {
		return err
	}
	if set.limit < s.cfg.Idle.MaxConnections {
		s.cfg.Logger.Warn("fewer connections than configured", "limit", set.limit, "because", set.why)
	}
	return nil
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
	case <-s.down: // also if ctx is done
		return nil
	default:
	}
	inTime := context.AfterFunc(ctx, s.cut)
	<-s.down
	if !inTime() {
		return ctx.Err()
	}
	return nil
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

// Reaper returns the Reaper. All event loops share it.
func (s *Server) Reaper() *idle.Reaper { return s.reaper }

// Update changes limits at run time. It is Update of the Reaper, and sets what New sets if edit
// leaves it zero: MaxConnections, which stays within Limit, OutputLimit.Total and KeepClosed.
// [settings.Watcher.Run] takes it. Safe for concurrent use, not on an event loop.
func (s *Server) Update(edit func(*idle.Config)) error {
	return s.reaper.Update(func(cfg *idle.Config) {
		edit(cfg)
		if limit, _ := s.Limit(); limit > 0 {
			cfg.MaxConnections = min(cmp.Or(cfg.MaxConnections, limit), limit)
		}
		s.cfg.complete(cfg)
	})
}

// Addr returns the first of Addrs, nil before OnStarted is called.
func (s *Server) Addr() net.Addr {
	if addrs := s.Addrs(); len(addrs) > 0 {
		return addrs[0]
	}
	return nil
}

// Addrs returns the addresses that the server listens on in the order of Config.Addresses, with the
// ports that the kernel has chosen. It returns nil before OnStarted is called.
func (s *Server) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, ln := range s.setup().listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

// closeListeners closes the listeners, those that have not been used included.
func (s *Server) closeListeners() {
	for _, ln := range slices.Concat(s.setup().listeners, s.cfg.Listeners) {
		_ = ln.Close()
	}
}

// Limit returns the limit of open connections, 0 if there is none, and the reason why it is not
// higher. It is known when OnStarted is called.
func (s *Server) Limit() (connections int, why string) {
	set := s.setup()
	return set.limit, set.why
}

// setup returns what Run has found out, which is empty before Run.
func (s *Server) setup() setup { return *s.prepared.Load() }

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
				return
			}
		}
	}()
	return s.Run(ctx)
}
