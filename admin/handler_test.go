package admin

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/admin/page"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

func TestNewReportsAllMistakes(t *testing.T) {
	r, err := idle.Middleware(&site{}, hour)
	require.NoError(t, err)
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{}, []string{"Config.Reaper is nil", "Config.Token is empty"}},
		{Config{Token: "123456789012345"}, []string{"Config.Reaper is nil", "Config.Token has 15 characters"}},
		{Config{Token: "x", Open: true}, []string{"Config.Reaper is nil", "Config.Token has 1 characters"}},
		{Config{Open: true}, []string{"Config.Reaper is nil"}},
		{Config{Open: true, Reaper: (*idle.Reaper)(nil)}, []string{"Config.Reaper is nil"}},
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
		var joined interface{ Unwrap() []error }
		require.ErrorAs(t, err, &joined)
		require.Len(t, joined.Unwrap(), len(c.want), "%v", err)
		for _, want := range c.want {
			require.ErrorContains(t, err, "admin: "+want)
		}
		require.NotContains(t, err.Error(), "123456789012345", "the error does not contain the token")
	}
}

// With a token that ends with the newline of its file, no request could succeed.
func TestATokenThatNoHeaderCanCarryIsRefused(t *testing.T) {
	r, err := idle.Middleware(&site{}, hour)
	require.NoError(t, err)
	for _, bad := range []string{rightToken + "\n", " " + rightToken, rightToken + "\x00", strings.Repeat(" ", 16)} {
		_, err := New(Config{Reaper: r, Token: bad})
		require.Error(t, err, "%q", bad)
	}
}

// An endpoint is a valid request and the access that it needs.
type endpoint struct {
	method, path, body string
	needs              access
	status             int // of the answer to an authorized request
}

// endpoints are all endpoints. The path of a kick has a verb for the ID.
var endpoints = []endpoint{
	{"GET", "/", "", public, 200},
	{"GET", "/livez", "", public, 200},
	{"GET", "/readyz", "", public, 200},
	{"GET", "/metrics", "", public, 200},
	{"GET", "/api/connections", "", readAccess, 200},
	{"GET", "/api/closed", "", readAccess, 200},
	{"GET", "/api/config", "", readAccess, 200},
	{"GET", "/api/silences", "", readAccess, 200},
	{"GET", "/api/events", "", readAccess, 200},
	{"GET", "/debug/pprof/", "", secretAccess, 200},
	{"GET", "/debug/pprof/goroutine", "", secretAccess, 200},
	{"POST", "/api/timeouts", `{"read-timeout":"2m"}`, fullAccess, 200},
	{"POST", "/api/connections/%s/kick", "", fullAccess, 204},
}

// A client is the sender of a request, as far as access depends on it.
type client struct {
	authorization string
	validToken    bool
	header, value string // says from which site the request comes
	sameSite      bool
}

// clients returns every combination of tokens and sites.
func clients(url string) (all []client) {
	for _, token := range []struct {
		authorization string
		valid         bool
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
	} {
		for _, site := range []struct {
			header, value string
			same          bool
		}{
			{"Origin", "", true},
			{"Origin", url, true},
			{"Sec-Fetch-Site", "same-origin", true},
			{"Origin", "http://evil.example", false},
			{"Origin", "null", false},
			{"Sec-Fetch-Site", "cross-site", false},
			{"Sec-Fetch-Site", "same-site", false},
		} {
			all = append(all, client{token.authorization, token.valid, site.header, site.value, site.same})
		}
	}
	return all
}

// status returns the status of the answer that a client gets from an endpoint.
func (c client) status(e endpoint, cfg Config) int {
	switch e.needs {
	case readAccess, secretAccess:
		if c.header == "Sec-Fetch-Site" && !c.sameSite { // a browser does not send Origin with each GET
			return 403
		}
		if (!cfg.Open || e.needs == secretAccess && cfg.Token != "") && !c.validToken {
			return 401
		}
	case fullAccess:
		if !c.sameSite || cfg.Token == "" {
			return 403
		}
		if !c.validToken {
			return 401
		}
	}
	return e.status
}

// TestEndpointsRequireTheirAccess sends requests to all endpoints, with all tokens and from all
// sites. A refused request changes nothing.
func TestEndpointsRequireTheirAccess(t *testing.T) {
	t.Parallel()
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
			s := newSite(t, 1, hour, with.cfg)
			conn := s.connect(t, "x")
			id := s.id(t, conn)
			for _, e := range endpoints {
				e.path = strings.Replace(e.path, "%s", id, 1)
				for _, c := range clients(s.url) {
					want := c.status(e, with.cfg)
					s.requireAccess(t, e, c, want)
					if want == 204 {
						requireEnd(t, conn)
						return // the kick is the last endpoint
					}
				}
			}
			require.Equal(t, 1, s.handler.inspector.open(), "without a token no connection is kicked")
			require.Empty(t, with.cfg.Token)
		})
	}
}

// requireAccess checks the status of an answer, and that a refused request changes nothing.
func (s *site) requireAccess(t *testing.T, e endpoint, c client, want int) {
	t.Helper()
	what := fmt.Sprintf("%s %s from %+v", e.method, e.path, c)
	r := s.request(t, e.method, e.path, strings.NewReader(e.body), "Authorization", c.authorization, c.header, c.value)
	resp, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err, what)
	defer resp.Body.Close()
	require.Equal(t, want, resp.StatusCode, what)
	if want >= 400 {
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err, what)
		requireError(t, want, answered{resp.StatusCode, resp.Header, string(text)}, what)
		require.Equal(t, want == 401, resp.Header.Get("WWW-Authenticate") != "", what)
		require.Equal(t, time.Hour, s.reaper.Config().ReadTimeout, what)
		require.Zero(t, s.reaper.Stats().Closed, what)
		return
	}
	if e.needs == fullAccess {
		require.NoError(t, s.reaper.Update(func(cfg *idle.Config) { *cfg = hour }))
	}
}

// TestARefusedChangeNamesNoFlag has a program that may have flags of other names, or none.
func TestARefusedChangeNamesNoFlag(t *testing.T) {
	h := newHandler(t, Config{Open: true})
	for _, path := range []string{"/api/timeouts", "/api/connections/1-0-1/kick"} {
		text := requireError(t, 403, call(h, "POST", path, `{"read-timeout":"5s"}`, "Authorization", ""))
		require.Contains(t, text, "nothing can be changed: the server was started without an admin token")
		require.NotContains(t, text, "--")
	}
	require.False(t, strings.Contains(string(page.HTML), "token-file"), "the page names no flag")
	require.Equal(t, false, decode[map[string]any](t, call(h, "GET", "/api/config", ""))["writable"])
}

func TestAnOpenHandlerAcceptsOnlyNamesOfThisMachine(t *testing.T) {
	open, closed := newHandler(t, Config{Open: true, Token: rightToken}), newHandler(t, Config{Token: rightToken})
	for host, local := range map[string]bool{
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
			for h, reachable := range map[*Handler]bool{open: local, closed: true} {
				r := newRequest(t.Context(), e.method, strings.Replace(e.path, "%s", "1-2-3", 1), e.body)
				r.Host = host
				a := callWith(h, r)
				if reachable {
					require.NotEqual(t, 403, a.status, "%q %s: %s", host, e.path, a.body)
					continue
				}
				requireError(t, 403, a, host+" "+e.path)
				require.Equal(t, time.Hour, idleReaper(h.reaper).Config().ReadTimeout, host)
			}
			require.NoError(t, idleReaper(open.reaper).Update(func(cfg *idle.Config) { *cfg = hour }))
		}
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
			a := call(h, method, strings.Replace(e.path, "%s", "1-2-3", 1), e.body)
			requireError(t, 405, a, method+" "+e.path)
			require.Contains(t, a.header.Get("Allow"), e.method, method+" "+e.path)
		}
	}
	require.Equal(t, time.Hour, idleReaper(h.reaper).Config().ReadTimeout)
}

func TestHEADWorksWhereGETDoes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Open: true, Profiles: true})
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
	require.Empty(t, s.handler.live.viewers, "HEAD adds no viewer")
}

// A client that checks whether there are profiles must not wait for one, nor slow the program down.
func TestHEADOfAProfileRecordsNothing(t *testing.T) {
	h := newHandler(t, Config{Open: true, Profiles: true})
	for _, path := range []string{"/debug/pprof/profile?seconds=300", "/debug/pprof/trace?seconds=300"} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "HEAD", path, nil)
		r.Host = "localhost"
		require.Equal(t, 200, callWith(h, r).status)
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
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/pprof/trace", "/debug/vars", "/" + strings.Repeat("x", 100_000), "/%00", "/\\evil.example",
		"/%2e%2e/%2e%2e/etc/passwd",
		"/..%2f..%2fetc/passwd", "/api/connections/..%2f..%2f/kick/x", "/%", "/\xff",
	} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			r := newRequest(t.Context(), method, "/", "")
			r.URL.Path = path
			requireError(t, 404, callWith(h, r), path)
		}
	}
}

// TestOddPathsLeadNowhere sends paths that no browser sends. The answer is an error, or a
// redirect to the clean path on this host.
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
		a := callWith(h, r)
		if a.status >= 400 {
			requireError(t, a.status, a, target)
			require.Contains(t, []int{404, 405}, a.status, target)
			continue
		}
		require.Contains(t, []int{301, 307, 308}, a.status, "%s: %s", target, a.body)
		require.Regexp(t, "^/([^/\\\\]|$)", a.header.Get("Location"), "%s redirects to this host", target)
		if clean != "" {
			require.Equal(t, clean, a.header.Get("Location"), target)
		}
	}
}

func TestErrorsCutLongInput(t *testing.T) {
	h, long := newHandler(t, Config{Open: true, Token: rightToken, Profiles: true}), strings.Repeat("\x01\U0010ffff\"<", 20_000)
	for _, path := range []string{"/" + long, "/api/connections/" + long + "/kick", "/debug/pprof/" + long} {
		for _, method := range []string{"GET", "POST", long} {
			r := newRequest(t.Context(), "GET", "/", "")
			r.Method, r.URL.Path = method, path
			a := callWith(h, r)
			require.GreaterOrEqual(t, a.status, 400)
			require.Less(t, len(a.body), 2000)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Host = long
	a := callWith(h, r)
	require.Equal(t, 403, a.status)
	require.Less(t, len(a.body), 3000)
}

func TestAnswersForbidCachingAndSniffing(t *testing.T) {
	h := newHandler(t, Config{Open: true, Token: rightToken, Status: func() Status { return Status{State: Paused} }})
	for _, path := range []string{"/", "/livez", "/readyz", "/metrics", "/api/connections", "/api/closed", "/api/config",
		"/nothing", "//livez", "/api/timeouts"} {
		a := call(h, "GET", path, "")
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), path)
		require.Equal(t, "no-store", a.header.Get("Cache-Control"), path)
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"), path)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"), path)
	}
}

func TestThePageMayLoadNothing(t *testing.T) {
	a := call(newHandler(t, Config{Token: rightToken}), "GET", "/", "", "Authorization", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, string(page.HTML), a.body)
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	csp := a.header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'"} {
		require.Contains(t, csp, part)
	}
	require.NotContains(t, csp, "unsafe")
	for tag, source := range map[string]string{"style": "style-src", "script": "script-src"} {
		all := regexp.MustCompile("(?s)<"+tag+">(.*?)</"+tag+">").FindAllStringSubmatch(a.body, -1)
		require.Len(t, all, 1)
		sum := sha256.Sum256([]byte(all[0][1]))
		require.Contains(t, csp, source+" 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
	}
	require.NotRegexp(t, `<[^>]+ (style|on[a-z]+)=`, a.body, "an attribute that the policy forbids")
}

// TestRefusedRequestsAreLoggedAndCounted sends requests without the token, with a wrong one, and
// with the right one. The warning is logged at most once a second.
func TestRefusedRequestsAreLoggedAndCounted(t *testing.T) {
	var log syncbuf.Buffer
	h := newHandler(t, Config{Token: rightToken, Logger: newLogger(&log)})
	for _, e := range endpoints {
		if e.path != "/api/events" {
			call(h, e.method, strings.Replace(e.path, "%s", "1-2-3", 1), e.body, "Authorization", "Bearer "+rightToken)
		}
	}
	require.NotContains(t, log.String(), "refused")
	for range 3 {
		require.Equal(t, 401, call(h, "GET", "/api/connections", "", "Authorization", "").status)
	}
	require.Equal(t, 401, call(h, "POST", "/api/timeouts", `{}`, "Authorization", "Bearer wrong-wrong-wrong-").status)
	require.Equal(t, 1, strings.Count(log.String(), "a request was refused: the token is missing or wrong"), log.String())
	require.Contains(t, log.String(), " path=/api/connections total=1")
	require.NotContains(t, log.String(), "wrong-wrong")
	require.Contains(t, call(h, "GET", "/metrics", "").body, "\nidlewheel_admin_unauthorized_total 4\n")
}

func TestProbesReportTheState(t *testing.T) {
	var state State
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{State: state} }})
	for _, state = range []State{Ready, Starting, Paused, Draining} {
		live := call(h, "GET", "/livez", "")
		require.Equal(t, 200, live.status, state)
		require.Equal(t, "ok", strings.TrimSpace(live.body))
		ready := call(h, "GET", "/readyz", "")
		if state == Ready {
			require.Equal(t, 200, ready.status)
			require.Equal(t, "ok", strings.TrimSpace(ready.body))
			continue
		}
		require.Equal(t, 503, ready.status, state)
		require.Equal(t, "not ready: "+string(state), strings.TrimSpace(ready.body))
	}
	require.Equal(t, 200, call(newHandler(t, Config{Open: true}), "GET", "/readyz", "").status, "without Config.Status")
}

func TestProbesAndMetricsDoNotWaitForABlockedLoop(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		s := newSite(t, 1, hour, Config{Open: true})
		defer close(s.block)
		s.connect(t, "b")
		for _, path := range []string{"/livez", "/readyz", "/metrics", "/api/closed", "/api/config", "/"} {
			began := time.Now()
			require.Equal(t, 200, s.do(t, "GET", path, "").status, path)
			require.Less(t, time.Since(began), loopTimeout, path)
		}
	})
}

func TestMetricsAreThoseOfTheReaper(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, hour, Config{Token: rightToken})
	s.connect(t, "x")
	a := s.do(t, "GET", "/metrics", "", "Authorization", "")
	require.Equal(t, 200, a.status)
	for _, want := range []string{"idlewheel_connections_opened_total 1\n", "idlewheel_wheel_entries 1\n", "\ngo_goroutines ",
		"\nprocess_open_fds "} {
		require.Contains(t, a.body, want)
	}
}

func TestMetricsOfTheConfigReplaceTheDefault(t *testing.T) {
	registry := prometheus.NewRegistry()
	mine := prometheus.NewCounter(prometheus.CounterOpts{Name: "mine_total", Help: "Mine."})
	registry.MustRegister(mine)
	mine.Inc()
	a := call(newHandler(t, Config{Open: true, Metrics: registry}), "GET", "/metrics", "")
	require.Equal(t, 200, a.status)
	own := "# HELP idlewheel_admin_unauthorized_total Requests to the admin listener without the token that they need.\n" +
		"# TYPE idlewheel_admin_unauthorized_total counter\nidlewheel_admin_unauthorized_total 0\n"
	require.Equal(t, own+"# HELP mine_total Mine.\n# TYPE mine_total counter\nmine_total 1\n", a.body)
}

// TestTheConfigHasAllSettings compares the answer with Config.All of the Reaper.
func TestTheConfigHasAllSettings(t *testing.T) {
	settings := map[string]any{"addr": "x:1", "loops": 2}
	h := newHandler(t, Config{Token: rightToken, Status: func() Status { return Status{Settings: settings} }})
	got := decode[map[string]any](t, call(h, "GET", "/api/config", ""))
	require.Len(t, got, 3)
	require.Equal(t, true, got["writable"])
	require.Equal(t, map[string]any{"addr": "x:1", "loops": 2.0}, got["server"])
	given, want := got["limits"].(map[string]any), 0
	cfg := idleReaper(h.reaper).Config()
	for name, value := range configtable.Idle.Values(&cfg) {
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
	require.Equal(t, "1h0m0s", given["read-timeout"])
	require.Equal(t, "0s", given["write-timeout"])
}

// The settings come from the program around the Handler, which may pass values that JSON cannot
// have.
func TestSettingsOutsideJSONAreAnError(t *testing.T) {
	h := newHandler(t, Config{Open: true, Status: func() Status { return Status{Settings: map[string]any{"f": func() {}}} }})
	requireError(t, 500, call(h, "GET", "/api/config", ""))
}

func TestChangesAreLoggedWithoutTheToken(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	s := newSite(t, 1, hour, Config{Token: rightToken, Logger: newLogger(&log)})
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

// idleReaper returns the Reaper of gnet that a test has made.
func idleReaper(r reap.Reaper) *idle.Reaper { return r.(*idle.Reaper) }
