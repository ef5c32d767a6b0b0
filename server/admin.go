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

// check returns the address of the listener. It is nil if the Admin is off or wrong.
func (a *Admin) check() (*net.TCPAddr, error) {
	if a.Addr == "" {
		if *a != (Admin{}) {
			return nil, errorf("server: %s is not set: set it, for example to 127.0.0.1:7080", field("Admin.Addr"))
		}
		return nil, nil
	}
	addr, err := net.ResolveTCPAddr("tcp", a.Addr)
	if err != nil {
		return nil, errorf("server: %s is %q: %w", field("Admin.Addr"), a.Addr, err)
	}
	if !addr.IP.IsLoopback() && a.Token == "" {
		return nil, errorf("server: %s is %q, which others can reach: set %s, or listen on 127.0.0.1",
			field("Admin.Addr"), a.Addr, field("Admin.Token"))
	}
	if mistake := configtable.TokenMistake(a.Token); mistake != "" {
		return nil, errorf("server: %s %s", field("Admin.Token"), mistake)
	}
	return addr, nil
}

// newAdminSite returns nil if there is no address. The handler has the fields of its Config that
// are not settings.
func newAdminSite(cfg *Admin, addr *net.TCPAddr, of admin.Config, c prometheus.Collector) (*adminSite, error) {
	if addr == nil {
		return nil, nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	of.Token, of.Open, of.Profiles, of.Metrics = cfg.Token, addr.IP.IsLoopback(), cfg.Profiles, registry
	handler, err := admin.New(of)
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
