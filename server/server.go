package server

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/metrics"
	"github.com/idlewheel/idlewheel/settings"
)

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

	started   atomic.Bool               // Run, Shutdown or Close was called
	setup     atomic.Pointer[setup]     // empty before Run
	acceptors atomic.Pointer[acceptors] // nil while no event loops run
	pauses    pauses                    // of accepting
	reloads   struct{ done, failed atomic.Uint64 }
}

// New returns a Server for a Config, or an error that wraps ErrBadConfig and joins all that is
// wrong with the Config. It opens nothing: the addresses are opened by Run. A Server that is not
// needed after all can be dropped.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.check()
	adminAddr, adminErr := cfg.Admin.check()
	err = errors.Join(err, adminErr)
	s := &Server{cfg: cfg, down: make(chan struct{})}
	s.setup.Store(&setup{})
	if onIdle := cfg.Idle.OnIdle; onIdle != nil {
		cfg.Idle.OnIdle = func(c gnet.Conn, ev idle.Event) gnet.Action { return watch(onIdle(c, ev), s.stop) }
	}
	if cfg.Handler != nil {
		var idleErr error
		s.reaper, idleErr = idle.Middleware(cfg.Handler, cfg.Idle)
		err = errors.Join(err, idleErr)
	}
	if err != nil {
		return nil, badConfig{err}
	}
	s.admission = newAdmission(&cfg)
	of := admin.Config{Reaper: s.reaper, Status: s.status, Logger: cfg.Logger}
	if s.adminSite, err = newAdminSite(&cfg.Admin, adminAddr, of, s.Collector()); err != nil {
		return nil, badConfig{err}
	}
	s.serving, s.stop = context.WithCancelCause(context.Background())
	s.draining, s.cut = context.WithCancel(context.Background())
	return s, nil
}

// Reaper returns the Reaper. All event loops share it.
func (s *Server) Reaper() *idle.Reaper { return s.reaper }

// Update changes limits at run time. It is Update of the Reaper, and sets what New sets if edit
// leaves it zero: MaxConnections, which stays within the limit of descriptors, OutputLimit.Total
// and KeepClosed. [settings.Watcher.Run] takes it. Safe for concurrent use, not on an event loop.
func (s *Server) Update(edit func(*idle.Config)) error {
	limit, b := 0, s.setup.Load().budget
	err := s.reaper.Update(func(cfg *idle.Config) {
		edit(cfg)
		limit = b.bound(cfg.MaxConnections)
		cfg.MaxConnections = limit
		s.cfg.complete(cfg)
	})
	if a := s.acceptors.Load(); err == nil && a != nil {
		a.room.widen(limit)
	}
	return err
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
func (s *Server) Addrs() (addrs []net.Addr) {
	for _, ln := range s.setup.Load().listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

// AdminAddr returns the address of the admin listener with the port that the kernel has chosen. It
// returns nil if there is none, and before OnStarted is called.
func (s *Server) AdminAddr() net.Addr {
	if s.adminSite == nil || s.adminSite.listener.Load() == nil {
		return nil
	}
	return s.adminSite.listener.Load().Addr()
}

// Limit returns the number of connections that there is room for, 0 if for any number, and the
// reason why it is not higher. It is known when OnStarted is called. An Update that lowers
// MaxConnections leaves it as it is.
func (s *Server) Limit() (connections int, why string) {
	set := s.setup.Load()
	if set.listeners == nil {
		return 0, ""
	}
	connections = set.limit
	if a := s.acceptors.Load(); a != nil {
		connections = a.room.size()
	}
	return connections, set.budget.why(connections)
}

// Collector returns a prometheus.Collector for the metrics of the server and of its Reaper, see
// package metrics. Register it in one registry. The metrics of Config.Admin include it.
func (s *Server) Collector() prometheus.Collector {
	return &collector{metrics.NewCollector(s.reaper), s.Stats}
}

// Stats returns a snapshot. It makes a few system calls.
func (s *Server) Stats() Stats {
	reaper := s.reaper.Stats()
	st := Stats{
		Connections:    s.reaper.Connections(),
		MaxConnections: s.reaper.Config().MaxConnections,
		MaxDescriptors: s.setup.Load().budget.allowed,
		Paused:         s.pauses.waiting.Load() > 0,
		Pauses:         s.pauses.count.Load(),
		Reloads:        s.reloads.done.Load(),
		FailedReloads:  s.reloads.failed.Load(),
		Rejected: Rejected{
			Source:         s.admission.bySource.Load(),
			AcceptRate:     s.admission.byRate.Load(),
			MaxConnections: reaper.Refused,
		},
	}
	for _, queue := range s.logQueues() {
		st.DroppedLogs += queue.Dropped()
	}
	if a := s.acceptors.Load(); a != nil {
		st.Paused = st.Paused || st.MaxConnections > 0 && st.Connections >= st.MaxConnections
		st.Draining, st.Pressure = reaper.Draining || a.accepting.Err() != nil, a.pressure(st.Connections, st.MaxConnections)
	}
	return st
}

// logQueues returns the queue of the Logger, and that of the Reaper if it is another one.
func (s *Server) logQueues() []*logging.Queue {
	return slices.Compact([]*logging.Queue{logging.Of(s.cfg.Logger), logging.Of(s.reaper.Config().Logger)})
}

// Reloaded logs and counts a reload of settings, for [settings.Watcher.Run]. The error is the
// reason why the settings were not applied, nil if they were.
func (s *Server) Reloaded(err error) {
	if err != nil {
		s.reloads.failed.Add(1)
		s.cfg.Logger.Error("the limits were not reloaded", "error", settings.Explain(err, ""))
		return
	}
	s.reloads.done.Add(1)
	s.cfg.Logger.Info("the limits were reloaded")
}

func (s *Server) status() admin.Status {
	st := s.Stats()
	_, why := s.Limit()
	return admin.Status{
		State: s.adminState(st), Address: join(s.Addrs()), Limit: st.MaxConnections, LimitWhy: why, Rejected: st.Rejected.Total(),
		Pressure: admin.Pressure(st.Pressure), Settings: configtable.Server.JSON(&s.cfg),
	}
}

// adminState says whether new connections are welcome.
func (s *Server) adminState(st Stats) admin.State {
	switch {
	case s.serving.Err() != nil || st.Draining:
		return admin.Draining
	case s.acceptors.Load() == nil:
		return admin.Starting
	case st.Paused:
		return admin.Paused
	}
	return admin.Ready
}
