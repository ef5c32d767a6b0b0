//go:build unix

package server

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

const (
	childEnv  = "IDLEWHEEL_TEST_CHILD"
	testToken = "open-sesame-and-16-more"
)

// runChild is the main function of a child process. On Linux it is runFlooded.
var runChild func(string)

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		runChild(child)
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(8)) // parallel tests wait most of the time
	// Importing gnet starts two goroutines. Its workers wait for seconds before they end.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1"))
}

type echo struct {
	gnet.BuiltinEventEngine
	action gnet.Action
}

func (e *echo) OnTraffic(c gnet.Conn) gnet.Action {
	b, _ := c.Next(-1)
	_, _ = c.Write(b)
	return e.action
}

var idleConfig = idle.Config{ReadTimeout: 300 * time.Millisecond}

// withDefaults completes the Config of a server. By default it listens on a port of 127.0.0.1,
// echoes, and has the timeout of idleConfig.
func withDefaults(cfg Config) Config {
	if cfg.Handler == nil {
		cfg.Handler = &echo{}
	}
	if cfg.Addresses == nil && cfg.Listeners == nil {
		cfg.Addresses = []string{"127.0.0.1:0"}
	}
	if cfg.Idle.ReadTimeout == 0 {
		cfg.Idle.ReadTimeout = idleConfig.ReadTimeout
	}
	return cfg
}

// newServer is New, with defaults.
func newServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := New(withDefaults(cfg))
	require.NoError(t, err)
	return s
}

// run is New, with defaults, and Run.
func run(ctx context.Context, cfg Config) error {
	s, err := New(withDefaults(cfg))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// launch runs a server, with defaults, until cancel is called, and returns it when it has started.
func launch(t testing.TB, cfg Config) (s *Server, cancel func(), result <-chan error) {
	t.Helper()
	started := make(chan struct{}, 1)
	cfg.OnStarted = func(*Server) { started <- struct{}{} }
	s = newServer(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-started:
	case err := <-done:
		t.Fatalf("Run returned: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("not started within 10 s")
	}
	return s, cancel, done
}

// startIn is launch with a stop that waits for Run.
func startIn(t testing.TB, cfg Config) (s *Server, stop func()) {
	t.Helper()
	s, cancel, result := launch(t, cfg)
	return s, func() {
		t.Helper()
		cancel()
		require.NoError(t, await(t, result))
	}
}

// dial opens a connection to a server.
func dial(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	return sockets.Dial(t, addr.Network(), addr.String())
}

// visit opens a connection that a server serves.
func visit(t testing.TB, addr net.Addr, why ...any) net.Conn {
	t.Helper()
	c := dial(t, addr)
	require.NoError(t, pingPong(c, 10*time.Second), why...)
	return c
}

// requireEOF waits until a server has closed a connection.
func requireEOF(t testing.TB, c net.Conn, why ...any) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, why...)
}

// pingPong writes to a connection and waits for the echo.
func pingPong(c net.Conn, within time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

// await returns what a channel has, and fails a test that would wait for ever.
func await[T any](t testing.TB, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came within 10 s")
	}
	return v
}

func TestRunServesReapsAndStops(t *testing.T) {
	for name, addr := range map[string]string{
		"tcp":  "127.0.0.1:0",
		"url":  "tcp4://127.0.0.1:0",
		"unix": "unix://" + filepath.Join(shortDir(t), "s"),
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			s, stop := startIn(t, Config{Addresses: []string{addr}, NumEventLoop: 2})
			for range 8 { // over both loops
				visit(t, s.Addr())
			}
			requireEOF(t, dial(t, s.Addr()), "a silent connection is reaped")
			stop()
			goleak.VerifyNone(t, before)
		})
	}
}

func TestHandlerThatAsksForShutdownIsNoError(t *testing.T) {
	deciding := idleConfig
	deciding.OnIdle = func(gnet.Conn, idle.Event) gnet.Action { return gnet.Shutdown }
	for from, cfg := range map[string]Config{
		"OnTraffic": {Handler: &echo{action: gnet.Shutdown}, Drain: Drain{Delay: time.Hour}},
		"OnIdle":    {Idle: deciding},
		"OnClose":   {Handler: &leaves{}},
	} {
		s, _, result := launch(t, cfg)
		_, err := dial(t, s.Addr()).Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, await(t, result), from)
	}
	require.NoError(t, run(t.Context(), Config{Handler: &refuses{}}), "OnBoot")
}

type leaves struct{ echo }

func (*leaves) OnClose(gnet.Conn, error) gnet.Action { return gnet.Shutdown }

type refuses struct{ echo }

func (*refuses) OnBoot(gnet.Engine) gnet.Action { return gnet.Shutdown }

func TestContextThatIsDoneAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	require.NoError(t, run(ctx, Config{Listeners: []net.Listener{ln}, OnStarted: func(*Server) { t.Error("started") }}))
	require.ErrorIs(t, ln.Close(), net.ErrClosed)
}

func TestBadConfigIsRefused(t *testing.T) {
	_, err := New(Config{NumEventLoop: -1, AcceptRate: -1, PressureTimeout: -1})
	require.ErrorIs(t, err, ErrBadConfig)
	require.NotErrorIs(t, err, ErrServerClosed)
	require.ErrorIs(t, err, ErrBadAddress)
	for _, want := range []string{
		"server: bad address: Config.Addresses is not set", "server: Config.Handler is nil", "Config.NumEventLoop is -1: set a positive number",
		"Config.AcceptRate is -1", "Config.PressureTimeout is -1ns: set a positive duration",
	} {
		require.ErrorContains(t, err, want)
	}

	_, err = New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}})
	require.ErrorContains(t, err, "no limit is set")
	require.ErrorIs(t, err, ErrBadConfig)

	for _, addr := range []string{"nonsense", "udp://127.0.0.1:7000", "unix://relative", "fd://1", ""} {
		requireRefused(t, Config{Addresses: []string{"127.0.0.1:0", addr}}, fmt.Sprintf("server: bad address: Config.Addresses has %q: ", addr), ErrBadAddress)
	}
	for _, none := range []net.Listener{nil, (*net.TCPListener)(nil)} {
		requireRefused(t, Config{Listeners: []net.Listener{none}}, "Config.Listeners has a nil listener")
	}
	for want, cfg := range map[string]Config{
		`Config.Addresses has "127.0.0.1:7000" twice`:                 {Addresses: []string{"127.0.0.1:7000", "127.0.0.1:7000"}},
		"Config.Options has -1 event loops: set a positive number":    {Options: []gnet.Option{gnet.WithNumEventLoop(-1)}},
		"Config.Drain.Delay is -1ns: set a positive duration":         {Drain: Drain{Delay: -1}},
		"Config.Drain.Spread is -1ns: set a positive duration":        {Drain: Drain{Spread: -1}},
		"Config.Drain.Spread is 720h0m0.000000001s: set at most 720h": {Drain: Drain{Spread: 30*24*time.Hour + 1}},
		"Config.Drain.Timeout is 1s, less than Config.Drain.Spread":   {Drain: Drain{Spread: time.Minute, Timeout: time.Second}},
		"Config.Drain.Timeout is 721h0m0s: set at most 720h":          {Drain: Drain{Timeout: 721 * time.Hour}},

		"Connections is -1": {Sources: SourceLimits{Connections: -1}}, "Rate is -1": {Sources: SourceLimits{Rate: -1}},
		"IPv4Bits is 33": {Sources: SourceLimits{IPv4Bits: 33}}, "IPv6Bits is 129": {Sources: SourceLimits{IPv6Bits: 129}},
		"Entries is -1": {Sources: SourceLimits{Entries: -1}}, "not valid": {Sources: SourceLimits{Exempt: []netip.Prefix{{}}}},

		`Config.Admin.Addr is "0.0.0.0:0", which others can reach: set Config.Admin.Token`: {Admin: Admin{Addr: "0.0.0.0:0"}},
		`Config.Admin.Addr is ":0", which others can reach`:                                {Admin: Admin{Addr: ":0"}},
		`Config.Admin.Addr is "[::]:0", which others can reach`:                            {Admin: Admin{Addr: "[::]:0"}},
		"Config.Admin.Addr is not set":                                                     {Admin: Admin{Token: testToken}},
		`Config.Admin.Addr is "nonsense"`:                                                  {Admin: Admin{Addr: "nonsense"}},
		"Config.Admin.Token has 5 characters":                                              {Admin: Admin{Addr: "127.0.0.1:0", Token: "short"}},
		`Config.Admin.Addr is "localhost"`:                                                 {Admin: Admin{Addr: "localhost"}},
	} {
		requireRefused(t, cfg, want)
	}
}

// requireRefused checks that New finds one mistake in a Config.
func requireRefused(t *testing.T, cfg Config, want string, alsoIs ...error) {
	t.Helper()
	_, err := New(withDefaults(cfg))
	require.ErrorContains(t, err, want)
	require.NotContains(t, err.Error(), "\n", "one mistake")
	for _, target := range append(alsoIs, ErrBadConfig) {
		require.ErrorIs(t, err, target)
	}
}

func TestRunNamesTheAddressThatItCannotListenOn(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:7000": "cannot listen: listen tcp 192.0.2.1:7000",
		// The name may be known later.
		"host.invalid:7000":   "cannot listen: listen tcp: lookup host.invalid",
		"tcp6://127.0.0.1:80": "cannot listen",
	} {
		err := run(t.Context(), Config{Addresses: []string{addr}})
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, ErrBadConfig)
	}
	ln := sockets.Listen(t, "tcp", ":0")
	free := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	require.NoError(t, ln.Close())
	err := run(t.Context(), Config{Addresses: []string{":" + free, "127.0.0.1:" + free}})
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the second address is part of the first")
	require.ErrorContains(t, err, "127.0.0.1:"+free)
	require.ErrorContains(t, err, "in use: stop the server that listens there, or choose another address")
}

func TestSeveralAddresses(t *testing.T) {
	socket := "unix://" + filepath.Join(shortDir(t), "s")
	for name, cfg := range map[string]Config{
		"two of TCP":                {Addresses: []string{"127.0.0.1:0", "tcp4://127.0.0.1:0"}},
		"two of TCP, shared":        {Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"}, ReusePort: true},
		"TCP and a unix socket":     {Addresses: []string{"127.0.0.1:0", socket}},
		"a unix socket and two TCP": {Addresses: []string{socket, "127.0.0.1:0", "127.0.0.1:0"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			cfg.NumEventLoop = 2
			s, stop := startIn(t, cfg)
			require.Len(t, s.Addrs(), len(cfg.Addresses))
			require.Equal(t, s.Addrs()[0], s.Addr())
			for i, at := range s.Addrs() {
				require.Equal(t, strings.HasPrefix(cfg.Addresses[i], "unix"), at.Network() == "unix", "in the order of the Config")
				for range 4 {
					visit(t, at)
				}
			}
			require.Equal(t, 4*len(cfg.Addresses), s.Stats().Connections)
			stop()
			for _, at := range s.Addrs() {
				_, err := net.Dial(at.Network(), at.String())
				require.Error(t, err)
			}
			goleak.VerifyNone(t, before)
		})
	}
}

func TestAddressInUseIsNamed(t *testing.T) {
	s, stop := startIn(t, Config{ReusePort: true})
	defer stop()
	second := Config{Addresses: []string{s.Addr().String()}}
	err := run(t.Context(), second)
	require.ErrorContains(t, err, s.Addr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	second.ReusePort = true // both share the port
	_, stopSecond := startIn(t, second)
	stopSecond()
}

func TestTheSocketOfAnotherServerIsNotDeleted(t *testing.T) {
	name := filepath.Join(shortDir(t), "s")
	cfg := Config{Addresses: []string{"unix://" + name}}
	require.NoError(t, os.WriteFile(name, []byte("precious"), 0o600))
	require.ErrorContains(t, run(t.Context(), cfg), "not a socket")
	require.FileExists(t, name)
	require.NoError(t, os.Remove(name))

	ln := sockets.Listen(t, "unix", name)
	err := run(t.Context(), cfg)
	require.ErrorContains(t, err, name+": bind: address already in use: stop the server that listens there")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	probe, err := ln.Accept() // of New
	require.NoError(t, err)
	requireEOF(t, probe, "its end is not kept")
	require.NoError(t, probe.Close())
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	_, stop := startIn(t, cfg) // the socket of a dead server is replaced
	stop()

	// A live datagram socket refuses a stream in its own way.
	pc, err := net.ListenPacket("unixgram", name)
	require.NoError(t, err)
	defer pc.Close()
	require.ErrorIs(t, run(t.Context(), cfg), syscall.EADDRINUSE)
	require.FileExists(t, name)
}

func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "server")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestALimitOfTCPAndAUnixSocket fills a server that listens on both. New clients of both wait.
func TestALimitOfTCPAndAUnixSocket(t *testing.T) {
	s, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0", "unix://" + filepath.Join(shortDir(t), "s")},
		Idle:      idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 3},
	})
	defer stop()
	var conns []net.Conn
	for _, addr := range []net.Addr{s.Addrs()[0], s.Addrs()[1], s.Addrs()[0]} {
		conns = append(conns, visit(t, addr))
	}
	require.EqualValues(t, 0, s.Stats().Pauses, "no client waits")
	require.True(t, s.Stats().Paused, "the next one will")
	waiting := []net.Conn{dial(t, s.Addrs()[0]), dial(t, s.Addrs()[1])}
	for _, c := range waiting {
		require.ErrorIs(t, pingPong(c, 100*time.Millisecond), os.ErrDeadlineExceeded)
	}
	stats := s.Stats()
	require.True(t, stats.Paused)
	require.Zero(t, stats.Rejected)
	require.Equal(t, 3, stats.Connections)
	require.EqualValues(t, 1, stats.Pauses)
	conns[0].Close()
	conns[1].Close()
	for _, c := range waiting {
		require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		_, err := io.ReadFull(c, make([]byte, 4))
		require.NoError(t, err, "what it sent while it waited is answered")
	}
	conns[2].Close()
	require.Eventually(t, func() bool { return !s.Stats().Paused }, time.Minute, time.Millisecond)
}

// A dies kills the event loop of a connection that sends something.
type dies struct{ echo }

func (*dies) OnTraffic(c gnet.Conn) gnet.Action {
	_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error { return gneterrors.ErrEngineShutdown }))
	return gnet.None
}

func TestAnEventLoopThatDiesIsReported(t *testing.T) {
	for name, cfg := range map[string]Config{
		"serving":          {},
		"draining":         {Drain: Drain{Delay: time.Hour}},
		"a logger of gnet": {Options: []gnet.Option{gnet.WithLogger(newEngineLog(slog.New(slog.DiscardHandler)))}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Handler, cfg.Idle.ReadTimeout = &dies{}, time.Minute
			s, cancel, result := launch(t, cfg)
			c := dial(t, s.Addr())
			if cfg.Drain.Delay > 0 {
				cancel()
				await(t, s.serving.Done())
			}
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
			err = await(t, result)
			require.ErrorIs(t, err, ErrEngineDied)
			require.Regexp(t, s.Addr().String()+": .", err.Error())
		})
	}
}

func TestAllOutputIsLimitedByDefault(t *testing.T) {
	before := debug.SetMemoryLimit(4 << 20)
	defer debug.SetMemoryLimit(before)
	for _, tc := range []struct {
		limit idle.OutputLimit
		want  int
	}{
		{idle.OutputLimit{}, 1 << 20},
		{idle.OutputLimit{Hard: 1000}, 1 << 20},
		{idle.OutputLimit{Hard: 2 << 20}, 2 << 20},
		{idle.OutputLimit{Soft: 3 << 20, SoftFor: time.Second}, 3 << 20},
		{idle.OutputLimit{Total: 5}, 5},
		{idle.OutputLimit{Total: -1}, -1},
	} {
		s := newServer(t, Config{Idle: idle.Config{OutputLimit: tc.limit}})
		require.Equal(t, tc.want, s.Reaper().Config().OutputLimit.Total, "%+v", tc.limit)
	}
}
