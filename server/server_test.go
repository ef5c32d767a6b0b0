//go:build unix

package server

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
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

const childEnv = "IDLEWHEEL_TEST_CHILD"

func TestMain(m *testing.M) {
	if child := os.Getenv(childEnv); child != "" {
		runFlooded(child)
		return
	}
	flag.Parse()
	_ = flag.Set("test.parallel", needs.Parallel(8)) // parallel tests wait most of the time
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) // importing gnet starts two goroutines
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

// run is New and Run.
func run(ctx context.Context, cfg Config) error {
	s, err := New(cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// launch runs a server until cancel is called, and returns it when it has started. By default it
// listens on a port of 127.0.0.1 and echoes.
func launch(t testing.TB, cfg Config) (s *Server, cancel func(), result <-chan error) {
	t.Helper()
	if cfg.Handler == nil {
		cfg.Handler = &echo{}
	}
	if cfg.Addresses == nil && cfg.Listeners == nil {
		cfg.Addresses = []string{"127.0.0.1:0"}
	}
	started := make(chan struct{}, 1)
	cfg.OnStarted = func(*Server) { started <- struct{}{} }
	s, err := New(cfg)
	require.NoError(t, err)
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

// start is launch for tests that need the address only.
func start(t testing.TB, cfg Config) (addr net.Addr, stop func(), result <-chan error) {
	t.Helper()
	s, stop, result := launch(t, cfg)
	return s.Addr(), stop, result
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
	return sockets.Dial(t, "tcp", addr.String())
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
			at, stop, result := start(t, Config{Addresses: []string{addr}, Handler: &echo{}, Idle: idleConfig, NumEventLoop: 2})
			for range 8 { // over both loops
				c := sockets.Dial(t, at.Network(), at.String())
				require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
				_, err := c.Write([]byte("hello"))
				require.NoError(t, err)
				_, err = io.ReadFull(c, make([]byte, 5))
				require.NoError(t, err)
			}
			c := sockets.Dial(t, at.Network(), at.String())
			requireEOF(t, c, "a silent connection is reaped")
			stop()
			require.NoError(t, await(t, result))
			goleak.VerifyNone(t, before)
		})
	}
}

func TestHandlerThatAsksForShutdownIsNoError(t *testing.T) {
	deciding := idleConfig
	deciding.OnIdle = func(gnet.Conn, idle.Event) gnet.Action { return gnet.Shutdown }
	for from, cfg := range map[string]Config{
		"OnTraffic": {Handler: &echo{action: gnet.Shutdown}, Idle: idleConfig},
		"OnIdle":    {Handler: &echo{}, Idle: deciding},
		"OnClose":   {Handler: &leaves{}, Idle: idleConfig},
	} {
		cfg.Addresses = []string{"127.0.0.1:0"}
		at, _, result := start(t, cfg)
		c := dial(t, at)
		_, err := c.Write([]byte("x"))
		require.NoError(t, err)
		require.NoError(t, await(t, result), from)
	}
}

func TestHandlerThatRefusesToBoot(t *testing.T) {
	require.NoError(t, run(t.Context(), Config{Addresses: []string{"127.0.0.1:0"}, Handler: &refuses{}, Idle: idleConfig}))
}

type leaves struct{ echo }

func (*leaves) OnClose(gnet.Conn, error) gnet.Action { return gnet.Shutdown }

type refuses struct{ echo }

func (*refuses) OnBoot(gnet.Engine) gnet.Action { return gnet.Shutdown }

func TestContextThatIsDoneAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, run(ctx, Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig}))
}

func TestStopWhileBooting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig}
	cfg.OnStarted = func(*Server) { cancel() }
	result := make(chan error, 1)
	go func() { result <- run(ctx, cfg) }()
	require.NoError(t, await(t, result))
}

func TestBadConfigIsRefused(t *testing.T) {
	_, err := New(Config{NumEventLoop: -1, AcceptRate: -1, PressureTimeout: -1})
	require.ErrorIs(t, err, ErrBadConfig)
	require.ErrorIs(t, err, ErrBadAddress)
	for _, want := range []string{
		"server: bad address: Config.Addresses is not set", "server: Config.Handler is nil", "Config.NumEventLoop is -1: set a positive number",
		"Config.AcceptRate is -1", "Config.PressureTimeout is -1ns: set a positive duration",
	} {
		require.ErrorContains(t, err, want)
	}

	for _, addr := range []string{"nonsense", "udp://127.0.0.1:7000", "unix://relative", "fd://1", ""} {
		_, err := New(Config{Addresses: []string{"127.0.0.1:0", addr}, Handler: &echo{}, Idle: idleConfig})
		require.ErrorContains(t, err, fmt.Sprintf("server: bad address %q", addr))
		require.ErrorIs(t, err, ErrBadConfig)
		require.ErrorIs(t, err, ErrBadAddress)
	}
	for _, none := range []net.Listener{nil, (*net.TCPListener)(nil)} {
		_, err = New(Config{Listeners: []net.Listener{none}, Handler: &echo{}, Idle: idleConfig})
		require.ErrorContains(t, err, "Config.Listeners has a nil listener")
		require.ErrorIs(t, err, ErrBadConfig)
	}
	for addr, want := range map[string]string{
		"192.0.2.1:7000": "cannot listen: listen tcp 192.0.2.1:7000",
		// The name may be known later.
		"host.invalid:7000":   "cannot listen: listen tcp: lookup host.invalid",
		"tcp6://127.0.0.1:80": "cannot listen",
	} {
		err := run(t.Context(), Config{Addresses: []string{addr}, Handler: &echo{}, Idle: idleConfig})
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, ErrBadConfig)
	}
	_, err = New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}})
	require.ErrorContains(t, err, "no limit is set")
	require.ErrorIs(t, err, ErrBadConfig)
}

func TestAddressesThatDoNotGoTogetherAreRefused(t *testing.T) {
	_, err := New(Config{Addresses: []string{"127.0.0.1:7000", "127.0.0.1:7000"}, Handler: &echo{}, Idle: idleConfig})
	require.ErrorContains(t, err, `Config.Addresses has "127.0.0.1:7000" twice`)
	require.ErrorIs(t, err, ErrBadConfig)
	free := freePort(t)
	err = run(t.Context(), Config{Addresses: []string{":" + free, "127.0.0.1:" + free}, Handler: &echo{}, Idle: idleConfig})
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the second address is part of the first")
	require.ErrorContains(t, err, "127.0.0.1:"+free)
	require.ErrorContains(t, err, "in use: stop the server that listens there, or choose another address")
}

func freePort(t testing.TB) string {
	t.Helper()
	ln := sockets.Listen(t, "tcp", ":0")
	require.NoError(t, ln.Close())
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
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
			cfg.Handler, cfg.Idle, cfg.NumEventLoop = &echo{}, idleConfig, 2
			s, stop := startIn(t, cfg)
			require.Len(t, s.Addrs(), len(cfg.Addresses))
			require.Equal(t, s.Addrs()[0], s.Addr())
			for i, at := range s.Addrs() {
				require.Equal(t, strings.HasPrefix(cfg.Addresses[i], "unix"), at.Network() == "unix", "in the order of the Config")
				for range 4 {
					c := sockets.Dial(t, at.Network(), at.String())
					require.NoError(t, pingPong(c, 10*time.Second))
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
	cfg := Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, ReusePort: true}
	at, stop, result := start(t, cfg)
	second := Config{Addresses: []string{at.String()}, Handler: &echo{}, Idle: idleConfig}
	err := run(t.Context(), second)
	require.ErrorContains(t, err, at.String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	second.ReusePort = true
	_, stopSecond, secondResult := start(t, second)
	stopSecond()
	require.NoError(t, await(t, secondResult), "unless the port is shared")
	stop()
	require.NoError(t, await(t, result))
}

func TestTheSocketOfAnotherServerIsNotDeleted(t *testing.T) {
	name := filepath.Join(shortDir(t), "s")
	cfg := Config{Addresses: []string{"unix://" + name}, Handler: &echo{}, Idle: idleConfig}
	require.NoError(t, os.WriteFile(name, []byte("precious"), 0o600))
	require.ErrorContains(t, run(t.Context(), cfg), "not a socket")
	require.FileExists(t, name)
	require.NoError(t, os.Remove(name))

	ln := sockets.Listen(t, "unix", name)
	err := run(t.Context(), cfg)
	require.ErrorContains(t, err, name+": address already in use")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	requireDatagramSocketIsKept(t, name+"gram")
	_, stop, result := start(t, cfg) // the socket of a dead server is replaced
	stop()
	require.NoError(t, await(t, result))
}

// requireDatagramSocketIsKept checks that a live datagram socket, which refuses a stream in its own
// way, is not taken for a dead socket.
func requireDatagramSocketIsKept(t testing.TB, name string) {
	t.Helper()
	pc, err := net.ListenPacket("unixgram", name)
	require.NoError(t, err)
	defer pc.Close()
	err = run(t.Context(), Config{Addresses: []string{"unix://" + name}, Handler: &echo{}, Idle: idleConfig})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
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
		Addresses: []string{"127.0.0.1:0", "unix://" + filepath.Join(shortDir(t), "s")}, Handler: &echo{},
		Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 3},
	})
	defer stop()
	dial := func(addr net.Addr) net.Conn {
		return sockets.Dial(t, addr.Network(), addr.String())
	}
	var conns []net.Conn
	for _, addr := range []net.Addr{s.Addrs()[0], s.Addrs()[1], s.Addrs()[0]} {
		c := dial(addr)
		require.NoError(t, pingPong(c, 10*time.Second))
		conns = append(conns, c)
	}
	require.EqualValues(t, 0, s.Stats().Pauses, "no client waits")
	require.True(t, s.Stats().Paused, "the next one will")
	waiting := []net.Conn{dial(s.Addrs()[0]), dial(s.Addrs()[1])}
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
	require.Eventually(t, func() bool { return !s.Stats().Paused }, 10*time.Second, time.Millisecond)
}

// A dies kills the event loop of a connection that sends something.
type dies struct{ echo }

func (*dies) OnTraffic(c gnet.Conn) gnet.Action {
	_ = c.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error { return gneterrors.ErrEngineShutdown }))
	return gnet.None
}

func TestAnEventLoopThatDiesIsReported(t *testing.T) {
	for name, drain := range map[string]Drain{"serving": {}, "draining": {Delay: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			s, cancel, result := launch(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: &dies{}, Idle: idle.Config{ReadTimeout: time.Minute}, Drain: drain})
			c := dial(t, s.Addr())
			if drain.Delay > 0 {
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
		cfg := Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig}
		cfg.Idle.OutputLimit = tc.limit
		s, err := New(cfg)
		require.NoError(t, err)
		require.Equal(t, tc.want, s.Reaper().Config().OutputLimit.Total, "%+v", tc.limit)
	}
}
