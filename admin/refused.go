package admin

import (
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idlewheel/idlewheel/internal/logging"
)

// refused counts and logs requests without the token that they need. Safe for concurrent use.
type refused struct {
	log     *slog.Logger
	warning logging.Limiter
	total   atomic.Uint64
}

// add adds a request.
func (f *refused) add(r *http.Request) {
	total := f.total.Add(1)
	if f.warning.Allow() {
		f.log.Warn("a request was refused: the token is missing or wrong", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
			"total", total)
	}
}

// registry returns the metric.
func (f *refused) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "idlewheel_admin_unauthorized_total", Help: "Requests to the admin listener without the token that they need.",
	}, func() float64 { return float64(f.total.Load()) }))
	return r
}
