package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin/page"
)

var reasons = []string{
	"read idle", "write idle", "all idle", "no first byte", "no handshake", "write stall", "over limit", "below min rate", "heartbeat timeout", "max age",
	"drained", "kicked", "shed",
}

type object = map[string]any

// A scene is the state of a fake server. Its uptime, its hands and 250 messages per second advance
// by themselves.
type scene struct {
	loops, connections, reaped int
	uptime                     float64
	status                     string // ready if empty
	writable                   bool
	token                      string
	private                    bool   // reading requires the token as well
	evil                       string // for addresses and details
	gone                       string // the ID of a connection that is closed
	few                        bool   // a ring has four equally full sectors
	blocked                    bool   // an event loop does not answer
	outages                    int
	suspended                  bool   // verdicts are
	limits                     object // those of hello if nil
	missing, forbidden         bool   // the answers to a kick
	crowded, ended             string // why there is no stream, and why one ends
	net                        bool   // the server is on package net, without a limit
	minute                     []any  // the samples of hello
	pressure                   string // the timeout of hello under pressure
	thorough                   bool   // the test opens it in every window
}

func (s scene) hello() object {
	address := "127.0.0.1:7000"
	if s.evil != "" {
		address = s.evil
	}
	limits := s.limits
	if limits == nil {
		limits = object{
			"read-timeout": "30s", "write-timeout": "0s", "all-timeout": "0s", "first-byte-timeout": "10s", "max-age": "24h0m0s", "jitter": "0.1",
			"write-stall-timeout": "20s", "heartbeat": "0s", "max-connections": "19000",
		}
	}
	return object{
		"name": "idlewheel", "version": "v0.7.0", "address": address, "reasons": reasons,
		"writable": s.writable, "limits": limits, "minute": s.minute, "pressure_timeout": s.pressure,
	}
}

func (s scene) frame(up float64) object {
	up += s.uptime
	const turn = 102.4
	rings := []object{}
	random := rand.New(rand.NewPCG(uint64(s.connections), 7))
	each := s.connections / max(1, s.loops)
	for loop := range s.loops {
		now := 1000 + up + float64(loop)*.01
		hand := int(math.Mod(now, turn) / turn * 120)
		values := make([]int, 120)
		for i := range 38 { // 30 s is 35 sectors
			at := float64(i) / 36
			n := float64(each) / 36 * (.35 + .8*random.Float64() + 2.2*math.Exp(-math.Pow((at-.3-.1*float64(loop%3))*9, 2)))
			values[(hand+1+i)%120] = int(math.Max(0, n+random.Float64()-.4) * math.Min(1, 40*(1.04-at)))
		}
		values[(hand+70)%120] = each / 50
		if s.few {
			values = []int{each / 4, each / 4, each / 4, each / 4}
		}
		mine := s.reaped / s.loops
		if loop < s.reaped%s.loops {
			mine++
		}
		rings = append(rings, object{
			"loop": loop + 1, "connections": each, "turn_seconds": turn, "now_seconds": now, "sectors": values, "later": each / 90,
			"reaped": object{"read idle": mine - mine/9, "below min rate": mine / 9},
		})
	}
	if s.blocked {
		rings = nil
	}
	status := s.status
	if status == "" {
		status = "ready"
	}
	left := min(s.connections+s.reaped, 50)
	f := object{
		"now_ms": time.Now().UnixMilli(), "uptime_seconds": up, "status": status,
		"connections": s.connections, "limit": max(19_000, s.connections*3/2), "limit_why": "65536 descriptors, less 500 for everything else",
		"opened": s.connections + s.reaped + left, "closed": s.reaped + left,
		"reads": int(up * 250), "rejected": 12, "spared_unread": 3,
		"outages": s.outages, "outage_seconds": 8.2 * float64(s.outages), "postponed": 289 * s.outages, "suspensions": s.outages, "suspended": s.suspended,
		"suspended_for": []object{{"group": "remote 192.0.2.0/24", "silent_seconds": 12.5}}[:map[bool]int{true: 1}[s.suspended]],
		"reaped":        object{"read idle": s.reaped - s.reaped/9, "below min rate": s.reaped / 9},
		"lateness":      object{"count": s.reaped, "mean_seconds": .0512, "max_seconds": .109}, "loop_delay_seconds": 0, "clock_delay_seconds": .00013,
		"pressure": object{"connections": .667, "descriptors": .87, "heap": .012}, "rings": rings, "blocked": s.blocked,
	}
	idle := []object{}
	for i := 0; len(idle) < min(20, s.connections); i++ {
		id := fmt.Sprintf("%d-%d-%d", i%s.loops+1, i, 1000+i)
		if id == s.gone {
			continue
		}
		remote := fmt.Sprintf("10.0.0.1:%d", 4000+i)
		if i == 3 {
			remote = "[2001:db8:85a3:8d3:1319:8a2e:370:7348]:54321"
		}
		if s.evil != "" {
			remote = s.evil
		}
		idle = append(idle, object{
			"id": id, "remote": remote, "state": []string{"open", "open", "held", "open", "handshake", "exempt"}[i%6],
			"age_seconds":       61.2*float64(i+1) + up,
			"read_idle_seconds": math.Max(.2, 28-float64(i)*1.3), "write_idle_seconds": 2.5, "due_seconds": 2 + float64(i)*1.3,
			"received_bytes": 123 * (i + 1) * (i + 1), "sent_bytes": 45678 * (i + 1), "output_bytes": 700 * (i % 3), "unwritable": i%3 == 2, "missed_heartbeats": i % 2,
		})
	}
	f["idle"] = idle
	recent := []object{}
	for i := range min(20, s.reaped) {
		reason, detail := "read idle", "read idle for 30.1s, limit 30s"
		if i%9 == 8 {
			reason, detail = "below min rate", "below min rate: 12 bytes in 4s of a message, limit 100 bytes a second"
		}
		remote := fmt.Sprintf("10.0.0.1:%d", 5000+s.reaped-i)
		if s.evil != "" {
			remote, detail = fmt.Sprint(s.evil), s.evil
		}
		recent = append(recent, object{
			"at": time.Unix(int64(1763768000-i), 0).UTC().Format("2006-01-02T15:04:05.000Z"), "remote": remote, "reason": reason, "detail": detail,
			"age_seconds": 61.2 * float64(i+1), "lasted_seconds": 30.1, "limit_seconds": 30, "late_seconds": .08,
		})
	}
	f["recent"] = recent
	if s.net {
		delete(f, "reads")
		delete(f, "pressure")
	}
	if s.limits != nil {
		f["limits"] = s.limits
	}
	return f
}

type post struct{ path, authorization, contentType, body string }

// A fake is a server with the page and the API, which shows a scene. Safe for concurrent use.
type fake struct {
	url    string
	server *httptest.Server

	mu     sync.Mutex
	scene  scene
	began  time.Time
	posted []post
	open   int
}

func serve(t *testing.T, s scene) *fake {
	t.Helper()
	f := &fake{scene: s}
	f.start(t)
	f.url = f.server.URL
	t.Cleanup(func() { f.stop() })
	return f
}

// start starts the server, again at the same address.
func (f *fake) start(t *testing.T) {
	t.Helper()
	f.began = time.Now()
	f.server = httptest.NewUnstartedServer(f)
	if f.url != "" {
		f.server.Listener.Close()
		listener, err := net.Listen("tcp", strings.TrimPrefix(f.url, "http://"))
		require.NoError(t, err)
		f.server.Listener = listener
	}
	f.server.Start()
}

func (f *fake) stop() {
	f.server.CloseClientConnections()
	f.server.Close()
}

func (f *fake) set(change func(*scene)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.scene)
}

func (f *fake) get() scene {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.scene
}

func (f *fake) viewers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// posts returns the POST requests since its last call.
func (f *fake) posts() []post {
	f.mu.Lock()
	defer f.mu.Unlock()
	posted := f.posted
	f.posted = nil
	return posted
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := f.get()
	known := r.Header.Get("Authorization") == "Bearer "+s.token
	switch {
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		f.posted = append(f.posted, post{r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body)})
		f.mu.Unlock()
		if !known {
			fail(w, http.StatusUnauthorized, "a token is needed")
			return
		}
		f.answer(w, r.URL.Path, body)
	case r.URL.Path == "/":
		w.Header().Set("Content-Security-Policy", page.Policy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page.HTML)
	case r.URL.Path == "/api/events" && s.private && !known:
		fail(w, http.StatusUnauthorized, "a token is needed")
	case r.URL.Path == "/api/events" && s.crowded != "":
		fail(w, http.StatusServiceUnavailable, s.crowded)
	case r.URL.Path == "/api/events":
		f.stream(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) answer(w http.ResponseWriter, path string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, ok := strings.CutSuffix(strings.TrimPrefix(path, "/api/connections/"), "/kick"); ok {
		switch {
		case f.scene.forbidden:
			fail(w, http.StatusForbidden, "not from here")
		case f.scene.missing:
			fail(w, http.StatusNotFound, "no such connection")
		default:
			f.scene.gone = id
			f.scene.connections--
			w.WriteHeader(http.StatusNoContent)
		}
		return
	}
	given := object{}
	if err := json.Unmarshal(body, &given); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	limits := f.scene.hello()["limits"].(object)
	for name, value := range given {
		d, err := time.ParseDuration(value.(string))
		if err != nil {
			fail(w, http.StatusBadRequest, name+": "+err.Error())
			return
		}
		limits[name] = d.String()
	}
	f.scene.limits = limits
	json.NewEncoder(w).Encode(object{"server": object{}, "limits": limits, "writable": true})
}

// stream sends a frame four times a second, in two parts, as networks may split it.
func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.open++
	began := f.began
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.open--
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	hello, _ := json.Marshal(f.get().hello())
	fmt.Fprintf(w, ": welcome\n\nevent: hello\r\ndata: %s\r\n\r\n", hello)
	for r.Context().Err() == nil {
		if why := f.get().ended; why != "" {
			fmt.Fprintf(w, ": %s\nevent: end\ndata: {\"error\":%q}\n\n", strings.Repeat(" ", 1<<18), why)
			return
		}
		data, _ := json.Marshal(f.get().frame(time.Since(began).Seconds()))
		fmt.Fprintf(w, "event: frame\ndata: %s", data[:len(data)/2])
		flush.Flush()
		fmt.Fprintf(w, "%s\n\n", data[len(data)/2:])
		if flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(object{"error": text})
}

// fill changes the scene for some time, so that the charts have values.
func fill(f *fake, d time.Duration) {
	random := rand.New(rand.NewPCG(5, 6))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		f.set(func(s *scene) {
			s.connections = max(0, s.connections+int(random.NormFloat64()*float64(s.connections)/80))
			s.reaped += random.IntN(s.loops*3 + 1)
		})
	}
}
