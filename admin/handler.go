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
	"reflect"
	"strings"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/idlewheel/idlewheel/admin/page"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/metrics"
	"github.com/idlewheel/idlewheel/reap"
)

// loopTimeout bounds the time that a request waits for event loops.
const loopTimeout = 5 * time.Second

// Config configures a Handler.
type Config struct {
	// Reaper is the *idle.Reaper or *idlenet.Listener to show. It is required.
	Reaper reap.Reaper

	// Token is the secret that requests need, see Access in the package documentation. It has at
	// least 16 ASCII characters and no spaces, because it is sent in a header. If empty, nothing
	// can be changed, and Open is required.
	Token string

	// Open says that only this machine can reach the listener. Then requests that read need no
	// token, except for profiles if there is a Token. Every request must be for localhost or a
	// loopback address.
	Open bool

	// Status returns the state of the server around the Reaper. Safe for concurrent use. If nil,
	// the server is ready until Drain of the Reaper is called.
	Status func() Status

	// Metrics is the source of /metrics. If nil, it has the metrics of the Reaper, of Go and of the
	// process.
	Metrics prometheus.Gatherer

	// Profiles adds /debug/pprof/. A profile may contain parts of the memory of the program.
	Profiles bool

	// Logger gets a record for each change, and for requests without the token that they need, at
	// most once a second. If nil, warnings go to slog.Default().
	Logger *slog.Logger
}

// A State says whether a server accepts new connections.
type State string

// The states of a server. /readyz answers 200 for Ready only.
const (
	Ready    State = "ready"
	Starting State = "starting"
	Paused   State = "paused"   // there is no room for more connections
	Draining State = "draining" // the server closes its connections and stops
)

// Status is the state of the server around a Reaper.
type Status struct {
	State    State
	Address  string // of the listener for clients
	Limit    int    // of connections, 0 if there is none
	LimitWhy string // the reason for Limit
	Rejected uint64 // connections that were closed on arrival
	Pressure Pressure
	Settings map[string]any // of the server, for /api/config
}

// Pressure is the used part of each resource, from 0 to 1.
type Pressure struct {
	Connections float64 `json:"connections"`
	Descriptors float64 `json:"descriptors"`
	Heap        float64 `json:"heap"`
	Memory      float64 `json:"memory"`
}

// A Handler is the http.Handler of the package. Safe for concurrent use.
type Handler struct {
	cfg       Config
	reaper    reap.Reaper
	inspector inspector
	token     [sha256.Size]byte
	origins   *http.CrossOriginProtection
	mux       *http.ServeMux
	live      live
	history   history
	seesReads bool // the Reaper counts reads
	places    places
	refused   refused
	began     time.Time
}

// New returns a Handler. The error joins all mistakes in the Config.
func New(cfg Config) (*Handler, error) {
	var errs []error
	if v := reflect.ValueOf(cfg.Reaper); !v.IsValid() || v.IsNil() {
		errs = append(errs, errors.New("admin: Config.Reaper is nil: set the Reaper to show"))
	}
	if mistake := configtable.TokenMistake(cfg.Token); mistake != "" {
		errs = append(errs, errors.New("admin: Config.Token "+mistake))
	}
	if cfg.Token == "" && !cfg.Open {
		errs = append(errs, errors.New("admin: Config.Token is empty: set it, or Config.Open if only this machine can reach the listener"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Status == nil {
		cfg.Status = func() Status {
			in, stats, state := inspector{cfg.Reaper}, cfg.Reaper.Stats(), Ready
			if stats.Draining {
				state = Draining
			}
			return Status{
				State: state, Limit: in.limit(), Rejected: stats.Refused,
				Pressure: Pressure{Connections: float64(in.open()) / float64(in.limit())},
			}
		}
	}
	if cfg.Metrics == nil {
		registry := prometheus.NewRegistry()
		registry.MustRegister(metrics.NewCollector(cfg.Reaper), collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		cfg.Metrics = registry
	}
	cfg.Logger = cmp.Or(cfg.Logger, logging.Wrap(nil))
	h := &Handler{
		cfg: cfg, reaper: cfg.Reaper, inspector: inspector{cfg.Reaper}, token: sha256.Sum256([]byte(cfg.Token)),
		origins: http.NewCrossOriginProtection(), mux: http.NewServeMux(), places: places{max: MaxConnections},
		refused: refused{log: cfg.Logger}, began: time.Now(),
	}
	h.cfg.Metrics = prometheus.Gatherers{cfg.Metrics, h.refused.registry()}
	h.live.makeFrame = h.makeFrame
	_, h.seesReads = h.reaper.Limits()["output-total"] // of package idle alone, which sees messages
	h.route()
	keepHistory(weak.Make(h))
	return h, nil
}

// access is what a request needs for an endpoint.
type access int

const (
	public       access = iota // nothing
	readAccess                 // the token, unless Config.Open
	secretAccess               // the token, unless Config.Open and there is none
	fullAccess                 // the token
)

func (h *Handler) route() {
	h.handle("GET", "/{$}", public, h.servePage)
	h.handle("GET", "/livez", public, h.serveLive)
	h.handle("GET", "/readyz", public, h.serveReady)
	h.handle("GET", "/metrics", public, promhttp.HandlerFor(h.cfg.Metrics, promhttp.HandlerOpts{}).ServeHTTP)
	h.handle("GET", "/api/connections", readAccess, h.serveConnections)
	h.handle("GET", "/api/closed", readAccess, h.serveClosed)
	h.handle("GET", "/api/config", readAccess, h.serveConfig)
	h.handle("GET", "/api/silences", readAccess, h.serveSilences)
	h.handle("GET", "/api/events", readAccess, h.serveEvents)
	h.handle("POST", "/api/connections/{id}/kick", fullAccess, h.kick)
	h.handle("POST", "/api/timeouts", fullAccess, h.changeTimeouts)
	if h.cfg.Profiles {
		h.handle("GET", "/debug/pprof/{name...}", secretAccess, serveProfile)
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "the path %.100q does not exist", r.URL.Path)
	})
}

// handle adds an endpoint. An endpoint for GET accepts HEAD as well.
func (h *Handler) handle(method, path string, needs access, serve http.HandlerFunc) {
	h.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != method && (method != "GET" || r.Method != "HEAD") {
			w.Header().Set("Allow", method)
			fail(w, http.StatusMethodNotAllowed, "%.20s is not allowed: use %s", r.Method, method)
			return
		}
		if h.authorize(w, r, needs) {
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
	h.places.begin(r, h.hasToken(r))
	defer answerBeforeBody(w, r)()
	if h.cfg.Open && !isLoopback(r.Host) { // a foreign site can let its name point to this machine
		fail(w, http.StatusForbidden, "%.100q is not a name of this machine: use localhost or 127.0.0.1", r.Host)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// isLoopback reports whether a Host header names the loopback interface.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// authorize reports whether a request has the access that its endpoint needs. If not, it answers
// with an error.
func (h *Handler) authorize(w http.ResponseWriter, r *http.Request, needs access) bool {
	if needs == fullAccess {
		if err := h.origins.Check(r); err != nil {
			fail(w, http.StatusForbidden, "the request comes from the page of another site")
			return false
		}
		if h.cfg.Token == "" {
			fail(w, http.StatusForbidden, "nothing can be changed: the server was started without an admin token")
			return false
		}
	}
	if (needs == readAccess || needs == secretAccess) && isCrossSite(r) {
		fail(w, http.StatusForbidden, "the request comes from the page of another site")
		return false
	}
	if needs == public || h.cfg.Open && (needs == readAccess || needs == secretAccess && h.cfg.Token == "") || h.hasToken(r) {
		return true
	}
	h.refused.add(r)
	w.Header().Set("WWW-Authenticate", `Bearer realm="idlewheel"`)
	fail(w, http.StatusUnauthorized, "the token is missing or wrong: send it as Authorization: Bearer TOKEN")
	return false
}

// hasToken reports whether a request has the token.
func (h *Handler) hasToken(r *http.Request) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(given))
	return h.cfg.Token != "" && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1
}

// isCrossSite reports whether a browser sent the request for the page of another site. That page
// cannot read the answer, but the request costs work.
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

func (h *Handler) servePage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", page.Policy)
	_, _ = w.Write(page.HTML)
}

// serveLive does not inspect the event loops. An orchestrator that restarted the server because
// of one slow loop would cut off all clients. The metrics show a slow loop.
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

// answer answers with a value as JSON.
func answer(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, "the answer cannot be encoded as JSON: %v", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // an error means that the client is gone
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, args...)})
}

// failInspect answers with the error of an inspection.
func failInspect(w http.ResponseWriter, err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		fail(w, http.StatusServiceUnavailable, "an event loop did not answer within %v: a handler blocks it", loopTimeout)
		return
	}
	fail(w, http.StatusInternalServerError, "%v", err)
}
