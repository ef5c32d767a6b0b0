package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin/page"
	"github.com/idlewheel/idlewheel/idle"
)

func TestNewTellsAllThatIsWrong(t *testing.T) {
	r, err := idle.Middleware(&site{}, minute)
	require.NoError(t, err)
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{}, []string{"Config.Reaper is nil", "Config.Token is empty"}},
		{Config{Token: "123456789012345"}, []string{"Config.Reaper is nil", "Config.Token has 15 characters"}},
		{Config{Token: "x", Open: true}, []string{"Config.Reaper is nil", "Config.Token has 1 characters"}},
		{Config{Open: true}, []string{"Config.Reaper is nil"}},
		{Config{Reaper: r}, []string{"Config.Token is empty"}},
		{Config{Reaper: r, Token: "123456789012345"}, []string{"Config.Token has 15 characters"}},
		{Config{Reaper: r, Token: "1234567890123456"}, nil},
		{Config{Reaper: r, Token: "1234567890123456", Open: true}, nil},
		{Config{Reaper: r, Open: true}, nil},
	} {
		h, err := New(c.cfg)
		if c.want == nil {
			require.NoError(t, err)
			require.NotNil(t, h)
			continue
		}
		require.Nil(t, h)
		joined, ok := errors.AsType[interface {
			error
			Unwrap() []error
		}](err)
		require.True(t, ok, "%v is joined", err)
		require.Len(t, joined.Unwrap(), len(c.want), "%v", err)
		for _, want := range c.want {
			require.ErrorContains(t, err, "admin: "+want)
		}
		require.NotContains(t, err.Error(), "123456789012345", "the token is not in it")
	}
}

// A token that ends with the newline of its file would lock out everybody, and nothing would tell why.
func TestATokenThatNoHeaderCanCarryIsRefused(t *testing.T) {
	r, err := idle.Middleware(&site{}, minute)
	require.NoError(t, err)
	for _, bad := range []string{rightToken + "\n", " " + rightToken, rightToken + "\x00", strings.Repeat(" ", 16)} {
		_, err := New(Config{Reaper: r, Token: bad})
		require.Error(t, err, "%q", bad)
	}
}

// An endpoint is a request that makes sense, and what it needs.
type endpoint struct {
	method, path, body string
	may                permission
	status             int // of the answer to who may
}

// endpoints are all of them. The path of a kick has a verb for the id.
var endpoints = []endpoint{
	{"GET", "/", "", toAll, 200},
	{"GET", "/livez", "", toAll, 200},
	{"GET", "/readyz", "", toAll, 200},
	{"GET", "/metrics", "", toAll, 200},
	{"GET", "/api/connections", "", toRead, 200},
	{"GET", "/api/closed", "", toRead, 200},
	{"GET", "/api/config", "", toRead, 200},
	{"GET", "/api/events", "", toRead, 200},
	{"GET", "/debug/pprof/", "", toRead, 200},
	{"GET", "/debug/pprof/goroutine", "", toRead, 200},
	{"POST", "/api/timeouts", `{"read-timeout":"2m"}`, toChange, 200},
	{"POST", "/api/connections/%s/kick", "", toChange, 204},
}

// TestWhoMayDoWhat tries all endpoints with all tokens from everywhere. Where a request is refused nothing happens.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	tokens := []struct {
		header string
		right  bool
	}{
		{"", false},
		{"Bearer 0123456789abcdef-wrong", false},
		{"Bearer " + rightToken, true},
		{"bearer " + rightToken, true}, // RFC 9110, section 11.1
		{"Basic " + rightToken, false},
		{"bearer" + rightToken, false},
		{rightToken, false},
		{"Bearer " + strings.ToUpper(rightToken), false},
		{"Bearer", false},
		{"Bearer  ", false},
		{"Bearer " + rightToken + "x", false},
		{"Bearer " + rightToken[:len(rightToken)-1], false},
		{"Bearer x" + rightToken, false},
	}
	for _, with := range []struct {
		name string
		cfg  Config
	}{
		{"open and with a token", Config{Open: true, Token: rightToken, Profiles: true}},
		{"not open", Config{Token: rightToken, Profiles: true}},
		{"open and without a token", Config{Open: true, Profiles: true}},
	} {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1, minute, with.cfg)
			c := s.connect(t, "x")
			id := s.id(t, c)
			origins := []struct {
				name, value string
				same        bool
			}{
				{"Origin", "", true},
				{"Origin", s.url, true},
				{"Sec-Fetch-Site", "same-origin", true},
				{"Origin", "http://evil.example", false},
				{"Origin", "null", false},
				{"Sec-Fetch-Site", "cross-site", false},
				{"Sec-Fetch-Site", "same-site", false},
			}
			for _, e := range endpoints {
				for _, token := range tokens {
					for _, origin := range origins {
						want := e.status
						switch {
						case e.may == toChange && (!origin.same || with.cfg.Token == ""),
							e.may == toRead && origin.name == "Sec-Fetch-Site" && !origin.same: // Origin is not sent with each GET
							want = 403
						case e.may == toChange && !token.right, e.may == toRead && !with.cfg.Open && !token.right:
							want = 401
						}
						path := strings.Replace(e.path, "%s", id, 1)
						what := fmt.Sprintf("%s %s, Authorization: %q, %s: %q", e.method, path, token.header, origin.name, origin.value)
						r := s.request(t, e.method, path, strings.NewReader(e.body), "Authorization", token.header, origin.name,
							origin.value)
						resp, err := http.DefaultTransport.RoundTrip(r)
						require.NoError(t, err, what)
						var text []byte
						if resp.StatusCode != 200 {
							text, err = io.ReadAll(resp.Body)
							require.NoError(t, err, what)
						}
						resp.Body.Close()
						require.Equal(t, want, resp.StatusCode, what)
						if want >= 400 {
							requireError(t, want, answered{resp.StatusCode, resp.Header, string(text)}, what)
							require.Equal(t, want == 401, resp.Header.Get("WWW-Authenticate") != "", what)
							require.Equal(t, time.Minute, s.reaper.Config().ReadTimeout, what)
							require.Zero(t, s.reaper.Stats().Closed, what)
							continue
						}
						if e.may == toChange {
							require.NoError(t, s.reaper.Update(toMinute))
							if e.status == 204 {
								requireEnd(t, c)
								return // it is the last one
							}
						}
					}
				}
			}
			require.Equal(t, 1, s.reaper.Connections(), "without a token nobody is kicked")
			require.Empty(t, with.cfg.Token)
		})
	}
}

func TestOnlyTheNamesOfThisMachineReachAnOpenHandler(t *testing.T) {
	open, closed := newHandler(t, Config{Open: true, Token: rightToken}), newHandler(t, Config{Token: rightToken})
	for host, of := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:1": true, "127.1.2.3:7080": true, "[::1]": true, "[::1]:7080": true, "localhost": true,
		"LOCALHOST":      true,
		"LocalHost:7080": true, "[::ffff:127.0.0.1]:7080": true,

		"evil.example": false, "evil.example:7080": false, "": false, ":7080": false, "127.0.0.1.evil.example": false,
		"localhost.evil.example:7080": false, "10.0.0.1": false, "10.0.0.1:7080": false, "0.0.0.0": false, "[::]:7080": false,
		"2130706433": false,
		"0x7f000001": false, "[::ffff:10.0.0.1]": false, "evil.example:127.0.0.1": false, "localhost@evil.example": false,
		"xlocalhost":                  false,
		"127.0.0.1@evil.example:7080": false, "localhost,evil.example": false, "192.168.0.1": false, "[fe80::1]": false,
		"ip6-localhost": false,
	} {
		for _, e := range endpoints {
			if e.path == "/api/events" || strings.HasPrefix(e.path, "/debug/") {
				continue
			}
			for h, reachable := range map[*Handler]bool{open: of, closed: true} {
				r := httptest.NewRequest(e.method, strings.Replace(e.path, "%s", "1-2-3", 1), strings.NewReader(e.body))
				r.Host = host
				setHeaders(r, nil)
				a := askWith(h, r)
				if reachable {
					require.NotEqual(t, 403, a.status, "%q %s: %s", host, e.path, a.body)
					continue
				}
				requireError(t, 403, a, host+" "+e.path)
				require.Equal(t, time.Minute, h.reaper.Config().ReadTimeout, host)
			}
			require.NoError(t, open.reaper.Update(toMinute))
		}
	}
}

func TestARequestWithoutAHostIsRefusedByAnOpenHandler(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Open: true})
	for _, head := range []string{"GET /livez HTTP/1.0\r\n\r\n", "GET /livez HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		_, err = io.WriteString(c, head)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, 403, resp.StatusCode, head)
	}
}

func TestAWrongMethodIsNotAllowed(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken, Profiles: true})
	for _, e := range endpoints {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW",
			strings.Repeat("X", 2000)} {
			if method == e.method || e.method == "GET" && method == "HEAD" {
				continue
			}
			a := ask(h, method, strings.Replace(e.path, "%s", "1-2-3", 1), e.body)
			requireError(t, 405, a, method+" "+e.path)
			require.Contains(t, a.header.Get("Allow"), e.method, method+" "+e.path)
		}
	}
	require.Equal(t, time.Minute, h.reaper.Config().ReadTimeout)
}

func TestHEADWorksWhereGETDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Open: true, Profiles: true})
	for _, e := range endpoints {
		if e.method != "GET" {
			continue
		}
		a := s.do(t, "HEAD", e.path, "")
		require.Equal(t, 200, a.status, e.path)
		require.Empty(t, a.body, e.path)
		if e.path == "/api/events" {
			require.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
			continue
		}
		require.Equal(t, s.do(t, "GET", e.path, "").header.Get("Content-Type"), a.header.Get("Content-Type"), e.path)
	}
	require.Empty(t, s.handler.live.viewers, "HEAD does not watch")
}

// Whoever wants to know whether there are profiles should not wait for one, nor slow the program down for it.
func TestHEADOfAProfileRecordsNothing(t *testing.T) {
	h := newHandler(t, Config{Open: true, Profiles: true})
	for _, path := range []string{"/debug/pprof/profile?seconds=300", "/debug/pprof/trace?seconds=300"} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "HEAD", path, nil)
		r.Host = "localhost"
		require.Equal(t, 200, askWith(h, r).status)
		require.NoError(t, ctx.Err(), "%s is answered at once", path)
	}
}

func TestAnUnknownPathIsNotFound(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken})
	for _, path := range []string{
		"/index.html", "/favicon.ico", "/api", "/api/", "/api/nothing", "/api/connections/", "/api/connections/1-2-3",
		"/api/connections/1-2-3/kick/",
		"/api/connections/1-2-3/kick/more", "/api/connections/1-2-3/shed", "/api/events/1", "/livez/", "/LIVEZ", "/debug",
		"/debug/", "/debug/pprof",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/vars", "/" + strings.Repeat("x", 100_000), "/%00", "/\\evil.example",
		"/%2e%2e/%2e%2e/etc/passwd",
		"/..%2f..%2fetc/passwd", "/api/connections/..%2f..%2f/kick/x", "/%", "/\xff",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			r := httptest.NewRequest(method, "/", nil)
			r.Host = "localhost"
			setHeaders(r, nil)
			r.URL.Path = path
			requireError(t, 404, askWith(h, r), path)
		}
	}
}

// TestOddPathsLeadNowhere sends paths as a browser would not. What is found is what would be found under the clean path, of this host.
func TestOddPathsLeadNowhere(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken})
	for target, clean := range map[string]string{
		"/../../etc/passwd": "/etc/passwd", "/./livez": "/livez", "//livez": "/livez", "/api//config": "/api/config",
		"/api/../livez":         "/livez",
		"//evil.example/%2e%2e": "", "//evil.example/..": "/", "///evil.example": "/evil.example",
		"/api/connections//kick": "/api/connections/kick",
		"/..//evil.example":      "/evil.example", "/%2e%2e/livez": "/livez", "/api/connections/%2e%2e/kick": "/api/kick",
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n")))
		require.NoError(t, err, target)
		a := askWith(h, r)
		if a.status >= 400 {
			requireError(t, a.status, a, target)
			require.Contains(t, []int{404, 405}, a.status, target)
			continue
		}
		require.Contains(t, []int{301, 307, 308}, a.status, "%s: %s", target, a.body)
		require.Regexp(t, "^/([^/\\\\]|$)", a.header.Get("Location"), "%s leads to this host", target)
		if clean != "" {
			require.Equal(t, clean, a.header.Get("Location"), target)
		}
	}
}

func TestALongInputIsNotRepeated(t *testing.T) {
	h, long := newHandler(t, Config{Open: true, Token: rightToken, Profiles: true}), strings.Repeat("\x01\U0010ffff\"<", 20_000)
	for _, path := range []string{"/" + long, "/api/connections/" + long + "/kick", "/debug/pprof/" + long} {
		for _, method := range []string{"GET", "POST", long} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Host, r.Method, r.URL.Path = "localhost", method, path
			setHeaders(r, nil)
			a := askWith(h, r)
			require.GreaterOrEqual(t, a.status, 400)
			require.Less(t, len(a.body), 2000)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = long
	a := askWith(h, r)
	require.Equal(t, 403, a.status)
	require.Less(t, len(a.body), 3000)
}

func TestEachAnswerForbidsToKeepOrToGuessIt(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken, Status: func() Status { return Status{State: Paused} }})
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics", "/api/connections", "/api/closed", "/api/config",
		"/nothing", "//livez", "/api/timeouts"} {
		a := ask(h, "GET", path, "")
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-store", a.header.Get("Cache-Control"), path)
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), path)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), path)
	}
}

func TestThePageMayLoadNothing(t *testing.T) {
	a := ask(newHandler(t, Config{Token: rightToken}), "GET", "/", "", "Authorization", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, string(page.HTML), a.body)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	csp := a.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'"} {
		require.Contains(t, csp, part)
	}
}

func TestReadyzTellsTheState(t *testing.T) {
	var state State
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: state} }})
	for _, state = range []State{Ready, Starting, Paused, Draining} {
		a := ask(h, "GET", "/readyz", "")
		if state == Ready {
			require.Equal(t, 200, a.status)
			require.Equal(t, "ok", strings.TrimSpace(a.body))
			continue
		}
		require.Equal(t, 503, a.status, state)
		require.Equal(t, "not ready: "+string(state), strings.TrimSpace(a.body))
	}
	require.Equal(t, 200, ask(newHandler(t, Config{Open: true}), "GET", "/readyz", "").status, "without Config.Status it is always ready")
}

func TestLivezIsOKInEachState(t *testing.T) {
	var state State
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: state} }})
	for _, state = range []State{Ready, Starting, Paused, Draining, ""} {
		a := ask(h, "GET", "/livez", "")
		require.Equal(t, 200, a.status, state)
		require.Equal(t, "ok", strings.TrimSpace(a.body))
	}
}

func TestProbesAndMetricsDoNotWaitForALoopThatIsBlocked(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Open: true})
	defer close(s.block)
	s.connect(t, "b")
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/api/closed", "/api/config", "/"} {
		began := time.Now()
		require.Equal(t, 200, s.do(t, "GET", path, "").status, path)
		require.Less(t, time.Since(began), patience, path)
	}
}

func TestMetricsAreThoseOfTheReaper(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, minute, Config{Token: rightToken})
	s.connect(t, "x")
	a := s.do(t, "GET", "/metrics", "", "Authorization", "")
	require.Equal(t, 200, a.status)
	for _, want := range []string{"idlewheel_connections_opened_total 1\n", "idlewheel_wheel_entries 1\n", "\ngo_goroutines ",
		"\nprocess_open_fds "} {
		require.Contains(t, a.body, want)
	}
}

func TestMetricsOfTheConfigReplaceThem(t *testing.T) {
	registry := prometheus.NewRegistry()
	mine := prometheus.NewCounter(prometheus.CounterOpts{Name: "mine_total", Help: "Mine."})
	registry.MustRegister(mine)
	mine.Inc()
	a := ask(newHandler(t, Config{Open: true, Metrics: registry}), "GET", "/metrics", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "# HELP mine_total Mine.\n# TYPE mine_total counter\nmine_total 1\n", a.body)
}

// TestTheConfigHasAllSettings compares what is answered with Config.All of the Reaper.
func TestTheConfigHasAllSettings(t *testing.T) {
	h := newHandler(t, Config{Token: rightToken, Status: func() Status {
		return Status{Settings: map[string]any{"addr": "x:1",
			"loops": 2}}
	}})
	got := decode[map[string]any](t, ask(h, "GET", "/api/config", ""))
	require.Len(t, got, 3)
	require.Equal(t, true, got["writable"])
	require.Equal(t, map[string]any{"addr": "x:1", "loops": 2.0}, got["server"])
	given, want := got["limits"].(map[string]any), 0
	for name, value := range h.reaper.Config().All() {
		want++
		switch value := value.(type) {
		case time.Duration:
			require.Equal(t, value.String(), given[name], name)
		case int:
			require.Equal(t, float64(value), given[name], name)
		default:
			require.Equal(t, value, given[name], name)
		}
	}
	require.Len(t, given, want)
	require.Equal(t, "1m0s", given["read-timeout"])
	require.Equal(t, "0s", given["write-timeout"])
}

func TestWithoutATokenTheConfigIsNotWritable(t *testing.T) {
	require.Equal(t, false, decode[map[string]any](t, ask(newHandler(t, Config{Open: true}), "GET", "/api/config", ""))["writable"])
}

// Settings come from the program around, which may give what JSON does not have.
func TestSettingsThatAreNoJSONAreAnError(t *testing.T) {
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{Settings: map[string]any{"f": func() {}}} }})
	requireError(t, 500, ask(h, "GET", "/api/config", ""))
}

func TestChangesAreLoggedWithoutTheToken(t *testing.T) {
	t.Parallel()
	var log diary
	s := newSite(t, 1, minute, Config{Token: rightToken, Logger: log.logger()})
	id := s.id(t, s.connect(t, "x"))
	require.Equal(t, 200, s.do(t, "POST", "/api/timeouts", `{"read-timeout":"2m"}`).status)
	require.Equal(t, 204, s.do(t, "POST", "/api/connections/"+id+"/kick", "").status)
	require.Equal(t, 401, s.do(t, "POST", "/api/timeouts", `{"read-timeout":"3m"}`, "Authorization", "Bearer "+rightToken+"x").status)
	require.Contains(t, log.String(), "read-timeout:2m0s")
	require.Contains(t, log.String(), "connection="+id)
	require.NotContains(t, log.String(), "3m")
	require.NotContains(t, log.String(), rightToken)
}

func TestNothingIsAddedToTheDefaultMux(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/livez", "/"} {
		_, pattern := http.DefaultServeMux.Handler(httptest.NewRequest("GET", path, nil))
		require.Empty(t, pattern, path)
	}
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	require.NotContains(t, string(deps), "net/http/pprof\n")
}
