package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idlewheel/idlewheel/admin/page"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/metrics"
)

// minToken is the shortest token: what is shorter can be guessed.
const minToken = 16

// patience is how long a request waits for event loops.
const patience = 5 * time.Second

// Config says what a Handler shows, and to whom.
type Config struct {
	// Reaper is what is shown. It is required.
	Reaper *idle.Reaper

	// Token is what those have to know who change something, or read what is not for all. At least 16 characters, of ASCII and without
	// spaces, since it goes into a header. If empty, nothing can be changed, and Open is required.
	Token string

	// Open says that only this machine can reach the listener: reading needs no token, but the request must be for a name of this
	// machine, localhost or an address of its loopback.
	Open bool

	// Status says how the server around the Reaper is. Safe for concurrent use. If nil, it is always ready.
	Status func() Status

	// Metrics are those of /metrics. If nil, they are those of the Reaper, of Go and of the process.
	Metrics prometheus.Gatherer

	// Profiles adds /debug/pprof/. A profile may show what the program has in memory.
	Profiles bool

	// Logger gets a record for each change. If nil, nothing is logged.
	Logger *slog.Logger
}

// A State is whether a server takes new clients.
type State string

// The states of a server. Only one that is ready is so for /readyz.
const (
	Ready    State = "ready"
	Starting State = "starting"
	Paused   State = "paused"   // there is no room for more connections
	Draining State = "draining" // it is about to stop
)

// Status is what the server around a Reaper says of itself.
type Status struct {
	State    State
	Address  string // that clients connect to
	Limit    int    // of connections, 0 if any number
	LimitWhy string
	Rejected uint64 // connections closed as they came
	Pressure Pressure
	Settings map[string]any // of the server, for /api/config
}

// Pressure is how much of each resource is in use, from 0 to 1.
type Pressure struct {
	Connections float64 `json:"connections"`
	Descriptors float64 `json:"descriptors"`
	Heap        float64 `json:"heap"`
}

// A Handler is an http.Handler. Safe for concurrent use.
type Handler struct {
	cfg     Config
	reaper  *idle.Reaper
	token   [sha256.Size]byte
	origins *http.CrossOriginProtection
	mux     *http.ServeMux
	live    live
	began   time.Time
}

// New returns a Handler, or an error that joins all that is wrong with the Config.
func New(cfg Config) (*Handler, error) {
	var errs []error
	if cfg.Reaper == nil {
		errs = append(errs, errors.New("admin: Config.Reaper is nil: set the Reaper to show"))
	}
	if n := len(cfg.Token); n > 0 && n < minToken {
		errs = append(errs, fmt.Errorf("admin: Config.Token has %d characters: set at least %d", n, minToken))
	}
	if strings.ContainsFunc(cfg.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		errs = append(errs, errors.New("admin: Config.Token has a character that cannot be sent: take letters and digits"))
	}
	if cfg.Token == "" && !cfg.Open {
		errs = append(errs, errors.New("admin: Config.Token is empty: set it, or Config.Open for a listener that only this machine can reach"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Status == nil {
		cfg.Status = func() Status { return Status{State: Ready, Limit: cfg.Reaper.Config().MaxConnections} }
	}
	if cfg.Metrics == nil {
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics.NewCollector(cfg.Reaper), collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		cfg.Metrics = registry
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	h := &Handler{
		cfg: cfg, reaper: cfg.Reaper, token: sha256.Sum256([]byte(cfg.Token)), origins: http.NewCrossOriginProtection(), mux: http.NewServeMux(),
		began: time.Now(),
	}
	h.live.look = h.lookAtAll
	h.route()
	return h, nil
}

// Who may see or do what an endpoint is about.
type permission int

const (
	toAll    permission = iota // who can reach the listener
	toRead                     // with the token, unless the listener is open
	toChange                   // with the token
)

func (h *Handler) route() {
	h.handle("GET", "/{$}", toAll, h.servePage)
	h.handle("GET", "/livez", toAll, h.serveLive)
	h.handle("GET", "/readyz", toAll, h.serveReady)
	h.handle("GET", "/metrics", toAll, promhttp.HandlerFor(h.cfg.Metrics, promhttp.HandlerOpts{}).ServeHTTP)
	h.handle("GET", "/api/connections", toRead, h.serveConnections)
	h.handle("GET", "/api/closed", toRead, h.serveClosed)
	h.handle("GET", "/api/config", toRead, h.serveConfig)
	h.handle("GET", "/api/events", toRead, h.serveEvents)
	h.handle("POST", "/api/connections/{id}/kick", toChange, h.kick)
	h.handle("POST", "/api/timeouts", toChange, h.changeTimeouts)
	if h.cfg.Profiles {
		h.handle("GET", "/debug/pprof/{name...}", toRead, serveProfile)
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is nothing at %.100q", r.URL.Path)
	})
}

// handle adds an endpoint. GET stands for HEAD as well.
func (h *Handler) handle(method, path string, may permission, serve http.HandlerFunc) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != "GET" || r.Method != "HEAD") {
			w.Header().Set("Allow", method)
			fail(w, http.StatusMethodNotAllowed, "%.20s is not allowed: use %s", r.Method, method)
			return
		}
		if h.permits(w, r, may) {
			serve(w, r)
		}
	})
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if h.cfg.Open && !isOfThisMachine(r.Host) { // the page of a site whose name its owner has made point to this machine
		fail(w, http.StatusForbidden, "%.100q is no name of this machine: use localhost or 127.0.0.1", r.Host)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// isOfThisMachine reports whether a Host header names the loopback.
func isOfThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// permits reports whether a request may go on, and answers it if it may not.
func (h *Handler) permits(w http.ResponseWriter, r *http.Request, may permission) bool {
	if may == toChange {
		if err := h.origins.Check(r); err != nil {
			fail(w, http.StatusForbidden, "the request comes from the page of another site")
			return false
		}
		if h.cfg.Token == "" {
			fail(w, http.StatusForbidden, "nothing can be changed: the server was started without a token (--admin-token-file)")
			return false
		}
	}
	if may == toRead && isOfAnotherSite(r) {
		fail(w, http.StatusForbidden, "the request comes from the page of another site")
		return false
	}
	if may == toAll || may == toRead && h.cfg.Open {
		return true
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(given))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="idlewheel"`)
		fail(w, http.StatusUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer TOKEN")
		return false
	}
	return true
}

// isOfAnotherSite reports whether a browser asks on behalf of the page of somebody else, which could not read the answer, but make work.
func isOfAnotherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

// policy lets the page load nothing, and ask this server only.
const policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (h *Handler) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	_, _ = w.Write(page.HTML)
}

// serveLive does not look at the event loops: who restarts a server because one is slow cuts off all its clients. The metrics tell of it.
func (h *Handler) serveLive(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintln(w, "ok")
}

func (h *Handler) serveReady(w http.ResponseWriter, _ *http.Request) {
	if state := h.cfg.Status().State; state != Ready {
		http.Error(w, "not ready: "+string(state), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, "this cannot be written as JSON: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // an error means that the client has gone
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, args...)})
}

// failBusy answers for event loops that have not answered in time.
func failBusy(w http.ResponseWriter, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		fail(w, http.StatusServiceUnavailable, "an event loop did not answer within %v: a handler blocks it", patience)
		return
	}
	fail(w, http.StatusInternalServerError, "%v", err)
}
