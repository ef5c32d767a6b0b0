// Command prometheus is an echo server on gnet with metrics.
//
//	go -C examples run ./prometheus -max-connections 20 -read-timeout 1h
//	prometheus --config.file=examples/prometheus/prometheus.yaml   # in another terminal
//	socat - TCP:127.0.0.1:7000                                     # in 19 more: alert in 5 min
//
// The metrics are at http://127.0.0.1:7080/metrics, next to those of the program itself. The alerts
// are in ../../deploy/prometheus/alerts.yaml. A client that sends nothing for -read-timeout is
// closed and counted by its reason.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

type echo struct {
	gnet.BuiltinEventEngine
	messages prometheus.Counter
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	e.messages.Inc()
	message, _ := c.Next(-1)
	_, _ = c.Write(message)
	return gnet.None
}

func (*echo) OnClose(c gnet.Conn, err error) gnet.Action {
	log.Printf("%v closed: %v", c.RemoteAddr(), err)
	return gnet.None
}

// serveMetrics serves /metrics. A program without metrics of its own sets -admin instead.
func serveMetrics(addr string, registry *prometheus.Registry) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { log.Fatal(server.Serve(ln)) }()
	log.Printf("metrics on %v", ln.Addr())
	return nil
}

func main() {
	e := &echo{messages: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "echo_messages_total", Help: "Messages that were sent back.",
	})}
	cfg := server.Config{Addresses: []string{"127.0.0.1:7000"}, Handler: e, OnStarted: func(s *server.Server) {
		log.Printf("listening on %v", s.Addr())
	}}
	metrics := flag.String("metrics", "127.0.0.1:7080", "`host:port` of the metrics")
	cfg.AddFlags(flag.CommandLine)
	limits := settings.New(flag.CommandLine, idle.Config{ReadTimeout: time.Minute})
	flag.Parse()
	if err := limits.Load(&cfg.Idle); err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	srv, err := server.New(cfg)
	if err != nil {
		log.Fatal(settings.Explain(err, "-"))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(srv.Collector(), e.messages,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := serveMetrics(*metrics, registry); err != nil {
		log.Fatal(err)
	}
	if err := srv.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
