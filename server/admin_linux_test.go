package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

const testToken = "open-sesame-and-16-more"

// get returns the status and body of a page of the admin listener.
func get(t testing.TB, s *Server, path string, token ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.AdminAddr().String()+path, nil)
	require.NoError(t, err)
	return do(t, req, token...)
}

func post(t testing.TB, s *Server, path, send string, token ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.AdminAddr().String()+path, strings.NewReader(send))
	require.NoError(t, err)
	return do(t, req, token...)
}

// client gives up if an answer does not end.
var client = &http.Client{Timeout: 20 * time.Second}

func do(t testing.TB, req *http.Request, token ...string) (status int, body string) {
	t.Helper()
	req.Close = true
	if len(token) > 0 {
		req.Header.Set("Authorization", "Bearer "+token[0])
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestAnOperatorSeesWhyAndChangesATimeout(t *testing.T) {
	before := goleak.IgnoreCurrent()
	srv, stop := startIn(t, Config{
		Idle:  idle.Config{ReadTimeout: time.Hour, Tick: 10 * time.Millisecond, MaxConnections: 50},
		Admin: Admin{Addr: "127.0.0.1:0", Token: testToken},
	})
	c := visit(t, srv.Addr())

	status, body := get(t, srv, "/readyz")
	require.Equal(t, 200, status, body)
	_, body = get(t, srv, "/api/connections?limit=5")
	require.Contains(t, body, c.LocalAddr().String())
	status, body = get(t, srv, "/metrics")
	require.Equal(t, 200, status)
	for _, line := range []string{
		`idlewheel_connections{state="open"} 1`, "idlewheel_connections_limit 50", `idlewheel_connections_rejected_total{reason="source"} 0`,
		`idlewheel_connections_rejected_total{reason="max_connections"} 0`, "idlewheel_accept_paused 0", `idlewheel_pressure_ratio{resource="connections"} 0.02`,
	} {
		require.Contains(t, body, "\n"+line)
	}
	require.Regexp(t, `\nidlewheel_open_descriptors [1-9]\d+`, body)
	require.Regexp(t, `\nidlewheel_max_descriptors [1-9]`, body)

	status, body = post(t, srv, "/api/timeouts", `{"read-timeout":"200ms"}`)
	require.Equal(t, 401, status, body)
	status, body = post(t, srv, "/api/timeouts", `{"read-timeout":"200ms"}`, testToken)
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"read-timeout":"200ms"`)
	requireEOF(t, c, "the new timeout holds for it")
	require.Eventually(t, func() bool {
		_, body = get(t, srv, "/api/closed")
		return strings.Contains(body, c.LocalAddr().String())
	}, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, body, `"reason":"read idle"`)
	require.Contains(t, body, "limit 200ms")

	addr := srv.AdminAddr().String()
	stop()
	_, err := net.DialTimeout("tcp", addr, time.Second)
	require.Error(t, err, "the listener is closed")
	goleak.VerifyNone(t, before)
}

func TestTheMetricsOfAServerPassPromlint(t *testing.T) {
	srv, stop := startIn(t, Config{Idle: idleConfig})
	defer stop()
	problems, err := testutil.CollectAndLint(srv.Collector())
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestReadinessFailsWhenAShutdownBegins(t *testing.T) {
	srv, _ := startIn(t, Config{Idle: idleConfig, Drain: Drain{Delay: time.Hour}, Admin: Admin{Addr: "127.0.0.1:0"}})
	shutdown := inBackground(func() error { return srv.Shutdown(t.Context()) })
	require.Eventually(t, func() bool {
		status, body := get(t, srv, "/readyz")
		return status == 503 && body == "not ready: draining\n"
	}, 10*time.Second, 10*time.Millisecond)
	status, _ := get(t, srv, "/livez")
	require.Equal(t, 200, status)
	requireAccepts(t, srv.Addr().String()) // during the delay
	require.NoError(t, srv.Close())
	require.NoError(t, await(t, shutdown))
}

func TestAServerWithoutRoomIsNotReady(t *testing.T) {
	srv, stop := startIn(t, Config{
		Admin: Admin{Addr: "127.0.0.1:0"},
		Idle:  idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 3},
	})
	defer stop()
	require.Equal(t, admin.Ready, srv.status().State)
	var conns []net.Conn
	for range 3 {
		conns = append(conns, visit(t, srv.Addr()))
	}
	require.Eventually(t, func() bool {
		status, body := get(t, srv, "/readyz")
		return status == 503 && body == "not ready: paused\n"
	}, 10*time.Second, 10*time.Millisecond)
	conns[0].Close()
	conns[1].Close()
	require.Eventually(t, func() bool {
		status, _ := get(t, srv, "/readyz")
		return status == 200
	}, 10*time.Second, 10*time.Millisecond)
}

func TestAdminWithoutATokenIsLocal(t *testing.T) {
	for want, a := range map[string]Admin{
		`Config.Admin.Addr is "0.0.0.0:0", which others can reach: set Config.Admin.Token`: {Addr: "0.0.0.0:0"},
		`Config.Admin.Addr is ":0", which others can reach`:                                {Addr: ":0"},
		`Config.Admin.Addr is "[::]:0", which others can reach`:                            {Addr: "[::]:0"},
		"Config.Admin.Addr is not set":                                                     {Token: testToken},
		`Config.Admin.Addr is "nonsense"`:                                                  {Addr: "nonsense"},
		"Config.Admin.Token has 5 characters":                                              {Addr: "127.0.0.1:0", Token: "short"},
		`Config.Admin.Addr is "localhost"`:                                                 {Addr: "localhost"},
	} {
		_, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Admin: a})
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrBadConfig)
	}
	taken := listenTCP(t)
	err := run(t.Context(), Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Admin: Admin{Addr: taken.Addr().String()}})
	require.ErrorContains(t, err, "cannot listen for Config.Admin")
	require.ErrorContains(t, err, taken.Addr().String())
	require.NotErrorIs(t, err, ErrBadConfig)
}

func TestReadingNeedsTheTokenIfOthersCanReachAdmin(t *testing.T) {
	srv, stop := startIn(t, Config{Idle: idleConfig, Admin: Admin{Addr: "0.0.0.0:0", Token: testToken}})
	defer stop()
	for path, free := range map[string]bool{
		"/": true, "/livez": true, "/readyz": true, "/metrics": true, "/api/connections": false, "/api/closed": false, "/api/config": false,
	} {
		status, _ := get(t, srv, path)
		require.Equal(t, map[bool]int{true: 200, false: 401}[free], status, path)
		status, _ = get(t, srv, path, testToken)
		require.Equal(t, 200, status, path)
	}
	status, _ := get(t, srv, "/debug/pprof/", testToken)
	require.Equal(t, 404, status)
}

func TestTheConfigurationHasTheNamesOfFlags(t *testing.T) {
	srv, stop := startIn(t, Config{Idle: idleConfig, Admin: Admin{Addr: "127.0.0.1:0", Profiles: true}, Drain: Drain{Spread: time.Minute}})
	defer stop()
	_, body := get(t, srv, "/api/config")
	var got struct {
		Server, Limits map[string]any
		Writable       bool
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, "2m0s", got.Server["drain-timeout"], "the default is filled in")
	require.Equal(t, "300ms", got.Limits["read-timeout"])
	require.EqualValues(t, 128, got.Limits["keep-closed"])
	require.False(t, got.Writable)
	status, body := get(t, srv, "/debug/pprof/goroutine?debug=1")
	require.Equal(t, 200, status)
	require.Contains(t, body, "goroutine profile")
}

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	return sockets.Listen(t, "tcp4", "127.0.0.1:0")
}

// slow serves a handler as the admin listener does, with the timeouts set to the given time.
func slow(t testing.TB, d time.Duration, handler *admin.Handler) (addr string) {
	t.Helper()
	srv := handler.NewServer()
	require.Positive(t, srv.ReadHeaderTimeout)
	require.Positive(t, srv.IdleTimeout)
	srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = d, d, d, d
	l := listenTCP(t)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-served
	})
	return l.Addr().String()
}

func newAdmin(t testing.TB) *admin.Handler {
	t.Helper()
	reaper, err := idle.Middleware(&gnet.BuiltinEventEngine{}, idleConfig)
	require.NoError(t, err)
	h, err := admin.New(admin.Config{Reaper: reaper, Open: true, Token: testToken})
	require.NoError(t, err)
	return h
}

func TestASlowClientOfAdminIsClosed(t *testing.T) {
	t.Parallel()
	addr := slow(t, 200*time.Millisecond, newAdmin(t))
	for name, send := range map[string]string{
		"nothing":          "",
		"half a header":    "GET / HTTP/1.1\r\nHost: local",
		"half a body":      "POST /api/timeouts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testToken + "\r\nContent-Length: 100\r\n\r\n{",
		"a body for a GET": "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx",
		"nothing more":     "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		c := sockets.Dial(t, "tcp", addr)
		_, err := io.WriteString(c, send)
		require.NoError(t, err)
		_, err = io.ReadAll(c)
		require.NoError(t, err, "a client that sends %s is closed", name)
	}
}

func TestARequestThatIsTooLargeIsRefused(t *testing.T) {
	addr := slow(t, 10*time.Second, newAdmin(t))
	resp, err := client.Get("http://" + addr + "/api/connections?sort=" + strings.Repeat("x", 64<<10))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
}

func TestRunDoesNotReturnBeforeTheLastRequestIsOver(t *testing.T) {
	srv, stop := startIn(t, Config{Idle: idleConfig, Admin: Admin{Addr: "127.0.0.1:0"}})
	began := make(chan struct{})
	var over atomic.Bool
	a := srv.adminSite
	inner := a.server.Handler
	a.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.serving.Add(1)
		defer a.serving.Done()
		close(began)
		<-r.Context().Done()
		time.Sleep(200 * time.Millisecond) // it cleans up
		inner.ServeHTTP(w, r)
		over.Store(true)
	})
	go func() {
		if resp, err := http.Get("http://" + srv.AdminAddr().String() + "/livez"); err == nil {
			resp.Body.Close()
		}
	}()
	await(t, began)
	stop()
	require.True(t, over.Load())
}

func TestTheConfigurationAndReapedConnectionsAreLogged(t *testing.T) {
	t.Parallel()
	var out syncbuf.Buffer
	srv, stop := startIn(t, Config{
		Idle: idleConfig, Drain: Drain{Delay: time.Millisecond}, Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	for range 3 {
		dial(t, srv.Addr())
	}
	require.Eventually(t, func() bool { return srv.Reaper().Stats().Reaped.Total() == 3 }, 10*time.Second, 10*time.Millisecond)
	stop()
	require.Equal(t, 1, strings.Count(out.String(), "msg=serving"), "%s", &out)
	require.Contains(t, out.String(), "config.drain-delay=1ms")
	require.Contains(t, out.String(), " idle.read-timeout=300ms")
	require.Contains(t, out.String(), `msg=reaped number=3 reasons.read_idle=3 connections=0 late=`)
	require.NotContains(t, out.String(), "from=gnet", "what gnet logs at its start is of level debug")
	require.NotContains(t, out.String(), "level=DEBUG")
}

// BenchmarkAdmin measures an echo over one connection without the admin listener, with one, and
// with one that has a viewer.
func BenchmarkAdmin(b *testing.B) {
	for _, viewers := range []int{-1, 0, 1} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			cfg := Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, NumEventLoop: 1, Idle: idle.Config{ReadTimeout: time.Minute}}
			if viewers >= 0 {
				cfg.Admin.Addr = "127.0.0.1:0"
			}
			ctx, cancel := context.WithCancel(context.Background())
			started, done := make(chan *Server, 1), make(chan error, 1)
			cfg.OnStarted = func(s *Server) { started <- s }
			go func() { done <- run(ctx, cfg) }()
			srv := <-started
			defer func() {
				cancel()
				require.NoError(b, <-done)
			}()
			if viewers > 0 {
				resp, err := http.Get("http://" + srv.AdminAddr().String() + "/api/events")
				require.NoError(b, err)
				defer resp.Body.Close()
				go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
			}
			for range 5000 { // for the viewer
				c, err := net.Dial("tcp", srv.Addr().String())
				require.NoError(b, err)
				defer c.Close()
			}
			c := sockets.Dial(b, "tcp", srv.Addr().String())
			buf := make([]byte, 16)
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
