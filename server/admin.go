package server

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/internal/configtable"
)

// An adminSite is the admin listener while Run runs, also while no event loops do.
type adminSite struct {
	addr     *net.TCPAddr
	server   *http.Server
	listener atomic.Pointer[net.TCPListener] // nil before Run
	serving  sync.WaitGroup                  // the server and its requests
}

// newAdminSite checks Config.Admin. It returns nil if Admin is off.
func (s *Server) newAdminSite() (*adminSite, error) {
	cfg := s.cfg.Admin
	if cfg.Addr == "" {
		if cfg != (Admin{}) {
			return nil, errorf("server: %s is not set: set it, for example to 127.0.0.1:7080", field("Admin.Addr"))
		}
		return nil, nil
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Addr)
	if err != nil {
		return nil, errorf("server: %s is %q: %w", field("Admin.Addr"), cfg.Addr, err)
	}
	if !addr.IP.IsLoopback() && cfg.Token == "" {
		return nil, errorf("server: %s is %q, which others can reach: set %s, or listen on 127.0.0.1",
			field("Admin.Addr"), cfg.Addr, field("Admin.Token"))
	}
	if mistake := configtable.TokenMistake(cfg.Token); mistake != "" {
		return nil, errorf("server: %s %s", field("Admin.Token"), mistake)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler, err := admin.New(admin.Config{
		Reaper: s.reaper, Token: cfg.Token, Open: addr.IP.IsLoopback(), Status: s.status, Metrics: registry, Profiles: cfg.Profiles,
		Logger: s.cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("server: Config.Admin: %w", err)
	}
	site := &adminSite{addr: addr, server: handler.NewServer()}
	site.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.serving.Add(1)
		defer site.serving.Done()
		handler.ServeHTTP(w, r)
	})
	return site, nil
}

// listen opens the listener and serves until close is called.
func (site *adminSite) listen() error {
	network := "tcp"
	if site.addr.IP.To4() != nil { // with "tcp", 0.0.0.0 would include the addresses of IPv6
		network = "tcp4"
	}
	listener, err := net.ListenTCP(network, site.addr)
	if err != nil {
		return errorf("server: cannot listen for %s: %w", field("Admin.Addr"), err)
	}
	site.listener.Store(listener)
	site.serving.Go(func() { _ = site.server.Serve(listener) })
	return nil
}

// close closes the listener and ends all requests, those of viewers included, and waits for them. A
// request that waits for an event loop may need a second.
func (site *adminSite) close() {
	_ = site.server.Close()
	site.serving.Wait()
}

// AdminAddr returns the address of the admin listener with the port that the kernel has chosen. It
// returns nil if there is none, and before OnStarted is called.
func (s *Server) AdminAddr() net.Addr {
	if s.adminSite != nil {
		if listener := s.adminSite.listener.Load(); listener != nil {
			return listener.Addr()
		}
	}
	return nil
}

func (s *Server) status() admin.Status {
	st, set := s.Stats(), s.setup()
	return admin.Status{
		State: s.adminState(st), Address: join(s.Addrs()), Limit: st.MaxConnections, LimitWhy: set.why, Rejected: st.Rejected.Total(),
		Pressure: admin.Pressure(st.Pressure), Settings: configtable.Server.JSON(&s.cfg),
	}
}

// adminState says whether new connections are welcome.
func (s *Server) adminState(st Stats) admin.State {
	switch {
	case s.serving.Err() != nil:
		return admin.Draining
	case s.engine.Load() == nil:
		return admin.Starting
	case st.Paused:
		return admin.Paused
	}
	return admin.Ready
}
