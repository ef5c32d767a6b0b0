package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/idlewheel/idlewheel/admin"
)

// Admin says where a server shows itself to those who operate it: with a live page, JSON, metrics and probes, see package admin. The zero
// Admin is off.
type Admin struct {
	// Addr is host:port to listen on for HTTP, such as 127.0.0.1:7080. One that others than this machine can reach needs a token.
	Addr string
	// Token is what those have to know who change something, at least 16 characters. If empty, nothing can be changed.
	Token string
	// Profiles adds /debug/pprof/.
	Profiles bool
}

const (
	// adminConns is how many connections the admin listener has at the same time. Descriptors are kept for them.
	adminConns = 64
	// adminKept is how many reaped connections are kept for it if the configuration says nothing.
	adminKept = 128
)

// An adminListener serves the admin page while the server runs, whether an engine does or not.
type adminListener struct {
	listener net.Listener
	server   *http.Server
	served   chan error
	handling sync.WaitGroup // requests
}

// listenAdmin opens the admin listener, nil if there is none.
func (s *Server) listenAdmin() (*adminListener, error) {
	cfg := s.cfg.Admin
	if cfg.Addr == "" {
		if cfg != (Admin{}) {
			return nil, badConfig{errors.New("server: Config.Admin has no Addr: set it, for example to 127.0.0.1:7080")}
		}
		return nil, nil
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Addr)
	if err != nil {
		return nil, badConfig{fmt.Errorf("server: Config.Admin.Addr is %q: %w", cfg.Addr, err)}
	}
	if !addr.IP.IsLoopback() && cfg.Token == "" {
		return nil, badConfig{fmt.Errorf("server: Config.Admin.Addr is %q, which others can reach: set Config.Admin.Token, or listen on 127.0.0.1",
			cfg.Addr)}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler, err := admin.New(admin.Config{
		Reaper: s.reaper, Token: cfg.Token, Open: addr.IP.IsLoopback(), Status: s.status, Metrics: registry, Profiles: cfg.Profiles,
		Logger: s.cfg.Logger,
	})
	if err != nil {
		return nil, badConfig{fmt.Errorf("server: Config.Admin: %w", err)}
	}
	network := "tcp"
	if addr.IP.To4() != nil { // 0.0.0.0 would be all addresses, those of IPv6 included
		network = "tcp4"
	}
	listener, err := net.ListenTCP(network, addr)
	if err != nil {
		return nil, fmt.Errorf("server: cannot listen for Config.Admin: %w", err)
	}
	a := &adminListener{listener: listener, served: make(chan error, 1)}
	a.server = newAdminServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.handling.Add(1)
		defer a.handling.Done()
		handler.ServeHTTP(w, r)
	}), s.cfg.Logger)
	go func() { a.served <- a.server.Serve(listener) }()
	return a, nil
}

// newAdminServer returns one that bounds what a slow client, or one that sends too much, can take.
func newAdminServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ConnState:         (&crowd{most: adminConns}).note,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // of clients that go
	}
}

// close ends the listener and all requests, those of viewers included, and waits for them.
func (a *adminListener) close() {
	if a == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // viewers would never end by themselves
	_ = a.server.Shutdown(ctx)
	_ = a.server.Close()
	<-a.served
	a.handling.Wait() // one that asks an event loop may need a second
}

// AdminAddr returns the address of the admin listener with the port that it was given, nil if there is none.
func (s *Server) AdminAddr() net.Addr {
	if s.admin == nil {
		return nil
	}
	return s.admin.listener.Addr()
}

// status is what the admin page shows of the server.
func (s *Server) status() admin.Status {
	st := s.Stats()
	return admin.Status{
		State: s.state(st), Address: s.at.addr.String(), Limit: st.MaxConnections, LimitWhy: s.why, Rejected: st.Rejected.Total(),
		Pressure: admin.Pressure(st.Pressure), Settings: s.cfg.named(),
	}
}

// state says whether newcomers are welcome.
func (s *Server) state(st Stats) admin.State {
	switch {
	case s.told.Load():
		return admin.Draining
	case s.host.Load() == nil:
		return admin.Starting
	case st.Paused:
		return admin.Paused
	}
	return admin.Ready
}
