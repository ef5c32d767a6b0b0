package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// ErrEngineDied is returned by Run when the engine has stopped although nobody asked it to. All its connections are
// closed. The error text has what gnet logged last, such as that there are too many open files.
var ErrEngineDied = errors.New("the gnet engine died")

// ErrBadConfig is returned by Run for a Config that it refuses, ErrBadAddress included, before anything is started.
var ErrBadConfig = errors.New("bad configuration")

// Config says what Run runs.
type Config struct {
	// Addr is the address to listen on: host:port for TCP, or a URL with the scheme tcp, tcp4, tcp6 or unix, such as
	// unix:///run/chat.sock. It is required. Port 0 is a free one, which Started is told.
	Addr string

	// Handler gets the events of all connections. It is required. If it implements idle.IdleHandler, it decides about
	// idle connections. To stop the server it returns gnet.Shutdown; if it calls Engine.Stop, Run takes the engine for
	// dead.
	Handler gnet.EventHandler

	// Idle says which connections are idle. Its Logger, if nil, is the one below.
	Idle idle.Config

	// Loops is the number of event loops. If zero, it is GOMAXPROCS, which follows the CPU limit of a container.
	// Negative values are refused.
	Loops int

	// MaxConnections is how many connections may be open. If zero, it is Idle.MaxConnections, and if that is zero as well, as many as
	// the limit of descriptors (RLIMIT_NOFILE) has room for, to which the process raises it; if there is room for fewer than asked
	// for, those. What it comes to is logged. From fifteen sixteenths on the connections that have been silent longest make room, see
	// idle.Config. When there is none, accepting is paused, on Linux and TCP: the system drops who comes, and his asks again.
	// Those that it had accepted by then, and elsewhere all, are rejected: closed, after Idle.Refusal. Update of the Reaper does not change it.
	MaxConnections int

	// PressureTimeout is to what idle timeouts shrink under pressure, which is the highest of connections against MaxConnections,
	// descriptors against what the process may have, and the live heap against GOMEMLIMIT: from 85 % on, linearly, down to it at
	// 95 %. If zero, they do not.
	PressureTimeout time.Duration

	// Sources limits what each source may take. Who is above it is closed at once, and the handler does not hear of it.
	Sources SourceLimits

	// AcceptRate is how many connections may come in a second, on average; twice as many at once. Others are closed at once. If
	// zero, any number.
	AcceptRate int

	// OneAcceptor lets one goroutine accept for all loops instead of each for itself, which spreads connections evenly. It does not wait
	// for the loops, and may have accepted a whole backlog (net.core.somaxconn) before accepting is paused, for which there must be
	// descriptors. Unix sockets and systems other than Linux have no other way.
	OneAcceptor bool

	// SharePort allows other processes to listen on the same port at the same time, where the system spreads
	// connections over them (SO_REUSEPORT on Linux), also over those that are not accepted now. If false, an address that somebody
	// listens on is an error.
	SharePort bool

	// Drain says how the server stops when the context is done.
	Drain Drain

	// Stopping is called when the context is done, before Drain.Delay begins: say there that no new clients are wanted, for example by
	// a readiness probe that fails. It must return soon: nothing goes on before. If nil, nothing is called.
	Stopping func()

	// StopNow ends a drain, and the server with it, when it is closed, as by [Signals]. If nil, only Drain bounds it.
	StopNow <-chan struct{}

	// Restart starts another engine on the same address when one has died, as gnet's do when a connection cannot be accepted. Its
	// connections are lost. Each is logged with how many there have been. The pause before it is 100ms, and twice as long each time
	// up to 5s, unless the engine has lived for a minute.
	Restart bool

	// Started is called once the address accepts connections, before the first of them is served, and again after a Restart, with
	// the same Server. If nil, nothing is called.
	Started func(*Server)

	// Admin is a listener for those who operate the server: a live page, metrics, probes, and the change of timeouts. It is there from
	// before the first connection is accepted until Run returns. Unless Idle.KeepClosed is set, the last 128 reaped are kept for it, until an
	// Update of the Reaper says otherwise.
	Admin Admin

	// Logger gets what gnet and the Reaper have to say; at level info the configuration at start, and every ten seconds what was reaped; at
	// level debug each reap; warnings about one thing at most once a second. If nil, nothing is logged.
	Logger *slog.Logger

	// Options are further options of gnet. They are applied last.
	Options []gnet.Option
}

// check returns the Config with its defaults filled in, or an error that joins all that is wrong with it.
func (cfg Config) check() (Config, error) {
	var errs []error
	if cfg.Addr == "" {
		errs = append(errs, fmt.Errorf("server: %w: Config.Addr is not set: set it, for example to 127.0.0.1:7000", ErrBadAddress))
	}
	if cfg.Handler == nil {
		errs = append(errs, errors.New("server: Config.Handler is nil: set the gnet.EventHandler to run"))
	}
	if cfg.MaxConnections < 0 {
		errs = append(errs, fmt.Errorf("server: Config.MaxConnections is %d: set a positive number, or 0 for as many as there is room for",
			cfg.MaxConnections))
	}
	errs = append(errs, cfg.Drain.check(), cfg.Sources.check())
	if cfg.AcceptRate < 0 {
		errs = append(errs, fmt.Errorf("server: Config.AcceptRate is %d: set a positive number, or 0 for any", cfg.AcceptRate))
	}
	if cfg.PressureTimeout < 0 {
		errs = append(errs, fmt.Errorf("server: Config.PressureTimeout is %v: set a positive duration, or 0 for none", cfg.PressureTimeout))
	}
	if cfg.Loops < 0 {
		errs = append(errs, fmt.Errorf("server: Config.Loops is %d: set a positive number, or 0 for one per CPU", cfg.Loops))
	}
	cfg.Loops = cmp.Or(cfg.Loops, runtime.GOMAXPROCS(0))
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, cfg.Idle.MaxConnections)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Idle.Logger = cmp.Or(cfg.Idle.Logger, cfg.Logger)
	if cfg.Admin.Addr != "" {
		cfg.Idle.KeepClosed = cmp.Or(cfg.Idle.KeepClosed, adminKept)
	}
	if err := errors.Join(errs...); err != nil {
		return cfg, badConfig{err}
	}
	return cfg, nil
}

// A badConfig is an error that is ErrBadConfig without saying so.
type badConfig struct{ error }

func (e badConfig) Is(target error) bool { return target == ErrBadConfig }
func (e badConfig) Unwrap() error        { return e.error }

// Run listens, serves until ctx is done or the handler returns gnet.Shutdown, closes all connections, as Config.Drain says if it was
// ctx, and returns nil. Every goroutine that it started is gone then. An address that cannot be listened on is an error that names it;
// an engine that stops without having been asked to is ErrEngineDied, unless Config.Restart has it started again.
//
// It may be called several times, also at the same time. gnet has one logger per process: that of the last call.
func Run(ctx context.Context, cfg Config) error {
	cfg, err := cfg.check()
	if err != nil {
		return err
	}
	s, err := newServer(cfg)
	if err != nil {
		return err
	}
	if s.admin, err = s.listenAdmin(); err != nil {
		return err
	}
	defer s.admin.close()
	defer s.reportUntil()()
	for ctx.Err() == nil {
		began := time.Now()
		err = s.run(ctx)
		died := errors.Is(err, ErrEngineDied) || err != nil && s.deaths > 0 // or could not come back
		if !cfg.Restart || !died || ctx.Err() != nil {
			return err
		}
		pause := s.pauseAfter(time.Since(began))
		cfg.Logger.Error("the engine has died and is started again", "cause", err, "restarts", s.deaths, "after", pause)
		if !sleep(ctx, pause) {
			break
		}
		s.restarts.Add(1)
	}
	s.stopping() // no engine runs whose end would call it
	return nil
}

// reportUntil logs what the server is, and what it reaps until the caller calls stop, which waits for the last line.
func (s *Server) reportUntil() (stop func()) {
	s.cfg.Logger.Info("serving", "config", s.cfg, "idle", s.reaper.Config(), "limit", s.limit, "because", s.why)
	ctx, cancel := context.WithCancel(context.Background())
	var reporting sync.WaitGroup
	reporting.Go(func() { (&reporter{log: s.cfg.Logger}).run(ctx, s.reaper.Stats) })
	return func() {
		cancel()
		reporting.Wait()
	}
}

// A Server is what Run runs: one engine, or one after the other on the same address. Safe for concurrent use, also after Run has
// returned.
type Server struct {
	cfg         Config
	watched     *watched
	reaper      *idle.Reaper
	at          address
	oneAcceptor bool
	budget      budget
	door        *door
	limit       int           // of connections
	why         string        // not more
	deaths      int           // of engines; of the goroutine of Run, as is pause
	pause       time.Duration // before the last restart
	restarts    atomic.Uint64
	pauses      atomic.Uint64        // of accepting
	host        atomic.Pointer[host] // of the engine that runs, nil if none does
	told        atomic.Bool          // to stop
	admin       *adminListener       // nil if there is none; set before anybody else has the Server
}

// Addr returns the address that the server listens on, with the port that it was given.
func (s *Server) Addr() net.Addr { return s.at.addr }

// Reaper returns the Reaper, which all engines share.
func (s *Server) Reaper() *idle.Reaper { return s.reaper }

// Limit returns how many connections may be open, 0 if any number, and why not more.
func (s *Server) Limit() (connections int, why string) { return s.limit, s.why }

func newServer(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, watched: watch(cfg.Handler)}
	var err error
	cfg.Idle.MaxConnections = 0 // it is cfg.MaxConnections, which a Config of the Reaper that comes back with Update must not undo
	if s.reaper, err = idle.Middleware(s.watched, s.watched.observe(cfg.Idle)); err != nil {
		return nil, badConfig{err}
	}
	if s.at, err = claim(cfg.Addr, cfg.SharePort); errors.Is(err, ErrBadAddress) {
		return nil, badConfig{err}
	} else if err != nil {
		return nil, err
	}
	s.oneAcceptor = cfg.OneAcceptor || runtime.GOOS != "linux" || s.at.network == "unix"
	if s.budget, s.limit, s.why, err = cfg.plan(s.oneAcceptor); err != nil {
		return nil, err
	}
	_ = s.reaper.Update(func(cfg *idle.Config) { cfg.MaxConnections = s.limit })
	s.door, err = newDoor(cfg)
	return s, err
}

const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// soundFor is how long an engine has to live for its death to be no sequel of the last one.
	soundFor = time.Minute
)

// pauseAfter returns how long to wait before the next engine, after one that has lived for some time.
func (s *Server) pauseAfter(lived time.Duration) time.Duration {
	s.deaths++
	s.pause = min(max(2*s.pause, minPause), maxPause)
	if lived >= soundFor {
		s.pause = minPause
	}
	return s.pause
}

func (s *Server) stopping() {
	s.told.Store(true)
	if s.cfg.Stopping != nil {
		s.cfg.Stopping()
	}
}

// run runs one engine.
func (s *Server) run(ctx context.Context) error {
	running, returned := context.WithCancel(context.Background()) // until gnet.Run returns
	defer returned()
	var stopper sync.WaitGroup
	host := newHost(s)
	host.setMaxConnections(s.limit) // whatever the last engine has left
	var stopped atomic.Bool         // by us
	booted := s.bootAlone(ctx)
	defer booted()
	host.booted = func(eng gnet.Engine) {
		stopper.Go(func() {
			select {
			case <-ctx.Done():
				s.stopping()
				s.drain(running, host)
				stopped.Store(running.Err() == nil)
				_ = eng.Stop(running) // an error means that it has stopped already
			case <-running.Done():
			}
		})
		stopper.Go(func() { host.guard(running, booted) })
		if s.cfg.PressureTimeout > 0 {
			stopper.Go(func() { host.relieve(running, s.cfg.PressureTimeout) })
		}
		s.host.Store(host)
		if s.cfg.Started != nil {
			s.cfg.Started(s)
		}
	}
	logger := &engineLog{Logger: s.cfg.Logger}
	opts := append([]gnet.Option{
		gnet.WithLogger(logger),
		gnet.WithNumEventLoop(s.cfg.Loops),
		gnet.WithReuseAddr(true),
		gnet.WithReusePort(!s.oneAcceptor),
	}, s.cfg.Options...)

	err := gnet.Run(host, s.at.url(), opts...)
	asked := stopped.Load() || s.watched.shutdown.Load()
	returned()
	stopper.Wait()
	host.gate.end()
	host.gate.forget()
	s.host.Store(nil)
	s.door.sayAll()
	switch {
	case err != nil:
		return fmt.Errorf("server: running on %s: %w", s.at.addr, err)
	case !asked:
		return fmt.Errorf("server: %w on %s: %s", ErrEngineDied, s.at.addr, logger.lastErrors())
	}
	return nil
}

// listeners returns how many listening sockets the engine opens.
func (s *Server) listeners() int {
	if s.oneAcceptor {
		return 1
	}
	opts := gnet.Options{NumEventLoop: s.cfg.Loops}
	for _, set := range s.cfg.Options { // which may have another number of loops
		set(&opts)
	}
	return opts.NumEventLoop
}

// bootAlone waits until no other server of this process that shares its port is about to open its listeners. The caller calls done, once or
// more, when this one has opened its own.
func (s *Server) bootAlone(ctx context.Context) (done func()) {
	if !s.cfg.SharePort {
		return func() {}
	}
	select {
	case booting <- struct{}{}:
		return sync.OnceFunc(func() { <-booting })
	case <-ctx.Done():
	case <-time.After(bootTime): // it has not opened them by then: its gate takes what there is
	}
	return func() {}
}

// drain lets connections go until they are gone, time is up, somebody asks to stop at once, or the engine does not run any more.
func (s *Server) drain(running context.Context, h *host) {
	patience, stop := context.WithCancel(running)
	defer stop()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-s.cfg.StopNow:
			stop()
		case <-patience.Done():
		}
	})
	h.drain(patience, s.cfg.Drain)
	stop()
	waiting.Wait()
}
