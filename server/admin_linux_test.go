package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/admin"
	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

// get returns the status and body of a page of the admin listener.
func get(t testing.TB, s *Server, path string, token ...string) (status int, body string) {
	t.Helper()
	return send(t, s, "GET", path, "", token...)
}

// awaitPage waits until the status and body of a page contain a text, and returns the body.
func awaitPage(t testing.TB, s *Server, path, want string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, body := get(t, s, path)
		if strings.Contains(fmt.Sprint(status, " ", body), want) {
			return body
		}
		require.False(t, time.Now().After(end), "%s is %d %s", path, status, body)
	}
}

// send sends a request to the admin listener, and gives up if the answer does not end.
func send(t testing.TB, s *Server, method, path, text string, token ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	status, body = ask(ctx, method, "http://"+s.AdminAddr().String()+path, text, strings.Join(token, ""))
	require.NotZero(t, status, body)
	return status, body
}

// ask sends a request on a connection of its own, as a kubelet does. The status is 0 if there is no
// answer until ctx is done.
func ask(ctx context.Context, method, url, text, token string) (status int, body string) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(text))
	if err != nil {
		return 0, err.Error()
	}
	if req.Close = true; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
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

	status, body = send(t, srv, "POST", "/api/timeouts", `{"read-timeout":"200ms"}`)
	require.Equal(t, 401, status, body)
	status, body = send(t, srv, "POST", "/api/timeouts", `{"read-timeout":"200ms"}`, testToken)
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"read-timeout":"200ms"`)
	requireEOF(t, c, "the new timeout holds for it")
	body = awaitPage(t, srv, "/api/closed", c.LocalAddr().String())
	require.Contains(t, body, `"reason":"read idle"`)
	require.Contains(t, body, "limit 200ms")

	addr := srv.AdminAddr().String()
	stop()
	_, err := net.DialTimeout("tcp", addr, time.Second)
	require.Error(t, err, "the listener is closed")
	goleak.VerifyNone(t, before)
}

func TestReadinessFailsWhenAShutdownBegins(t *testing.T) {
	srv, _ := startIn(t, Config{Drain: Drain{Delay: time.Hour}, Admin: Admin{Addr: "127.0.0.1:0"}})
	shutdown := inBackground(func() error { return srv.Shutdown(t.Context()) })
	awaitPage(t, srv, "/readyz", "503 not ready: draining\n")
	status, _ := get(t, srv, "/livez")
	require.Equal(t, 200, status)
	requireAccepts(t, srv.Addr().String()) // during the delay
	require.NoError(t, srv.Close())
	require.NoError(t, await(t, shutdown))
}

func TestAServerWithoutRoomIsNotReady(t *testing.T) {
	srv, stop := startIn(t, Config{
		Admin: Admin{Addr: "127.0.0.1:0"}, Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 3},
	})
	defer stop()
	require.Equal(t, admin.Ready, srv.status().State)
	var conns []net.Conn
	for range 3 {
		conns = append(conns, visit(t, srv.Addr()))
	}
	awaitPage(t, srv, "/readyz", "503 not ready: paused\n")
	conns[0].Close()
	conns[1].Close()
	awaitPage(t, srv, "/readyz", "200 ")
}

func TestAnAddressOfAdminThatIsInUseIsNamed(t *testing.T) {
	taken := listenTCP(t)
	err := run(t.Context(), Config{Admin: Admin{Addr: taken.Addr().String()}})
	require.ErrorContains(t, err, "cannot listen for Config.Admin")
	require.ErrorContains(t, err, taken.Addr().String())
	require.NotErrorIs(t, err, ErrBadConfig)
}

func TestReadingNeedsTheTokenIfOthersCanReachAdmin(t *testing.T) {
	srv, stop := startIn(t, Config{Admin: Admin{Addr: "0.0.0.0:0", Token: testToken}})
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
	require.Equal(t, admin.MaxConnections+1, srv.setup.Load().budget.admin)
	addr := srv.AdminAddr().(*net.TCPAddr)
	require.True(t, addr.IP.Equal(net.IPv4zero), "%v", addr)
	_, err := net.DialTimeout("tcp", net.JoinHostPort("::1", strconv.Itoa(addr.Port)), 5*time.Second)
	require.Error(t, err, "all addresses of IPv4 are none of IPv6")
}

func TestTheConfigurationHasTheNamesOfFlags(t *testing.T) {
	srv, stop := startIn(t, Config{Admin: Admin{Addr: "127.0.0.1:0", Profiles: true}, Drain: Drain{Spread: time.Minute}})
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

func TestRunDoesNotReturnBeforeTheLastRequestIsOver(t *testing.T) {
	srv, stop := startIn(t, Config{Admin: Admin{Addr: "127.0.0.1:0"}})
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
	go ask(t.Context(), "GET", "http://"+srv.AdminAddr().String()+"/livez", "", "")
	await(t, began)
	stop()
	require.True(t, over.Load())
}

// BenchmarkAdmin measures an echo over one connection without the admin listener, with one, and
// with one that has a viewer.
func BenchmarkAdmin(b *testing.B) {
	for _, viewers := range []int{-1, 0, 1} {
		b.Run(fmt.Sprintf("viewers=%d", viewers), func(b *testing.B) {
			cfg := Config{NumEventLoop: 1, Idle: idle.Config{ReadTimeout: time.Minute}}
			if viewers >= 0 {
				cfg.Admin.Addr = "127.0.0.1:0"
			}
			srv, stop := startIn(b, cfg)
			defer stop()
			if viewers > 0 {
				resp, err := http.Get("http://" + srv.AdminAddr().String() + "/api/events")
				require.NoError(b, err)
				defer resp.Body.Close()
				go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
			}
			for range 5000 { // for the viewer
				defer dial(b, srv.Addr()).Close()
			}
			c := dial(b, srv.Addr())
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
