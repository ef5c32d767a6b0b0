//go:build unix

package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/syncbuf"
)

const childEnv = "IDLEWHEEL_TEST_CHILD"

func TestMain(m *testing.M) {
	switch child := os.Getenv(childEnv); {
	case child == "dies", child == "restarts":
		runOutOfDescriptors(child == "restarts")
		return
	case child != "":
		runFlooded(child)
		return
	}
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

// launch runs a server until cancel is called, and returns it when it has started.
func launch(t *testing.T, cfg Config) (s *Server, cancel func(), result <-chan error) {
	t.Helper()
	started := make(chan struct{}, 10) // again after a restart
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
func start(t *testing.T, cfg Config) (addr net.Addr, stop func(), result <-chan error) {
	t.Helper()
	s, stop, result := launch(t, cfg)
	return s.Addr(), stop, result
}

// startIn is launch with a stop that waits for Run.
func startIn(t *testing.T, cfg Config) (s *Server, stop func()) {
	t.Helper()
	s, cancel, result := launch(t, cfg)
	return s, func() {
		t.Helper()
		cancel()
		require.NoError(t, await(t, result))
	}
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

func await(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("Run did not return within 10 s")
		return nil
	}
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
			for range 8 { // over both loops, which listen on the same port
				c, err := net.Dial(at.Network(), at.String())
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
				_, err = c.Write([]byte("hello"))
				require.NoError(t, err)
				_, err = io.ReadFull(c, make([]byte, 5))
				require.NoError(t, err)
			}
			c, err := net.Dial(at.Network(), at.String())
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "a silent connection is reaped")
			stop()
			require.NoError(t, await(t, result))
			goleak.VerifyNone(t, before)
		})
	}
}

func TestHandlerThatAsksForShutdownIsNoError(t *testing.T) {
	at, _, result := start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{action: gnet.Shutdown}, Idle: idleConfig})
	c, err := net.Dial("tcp", at.String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, await(t, result))

	deciding := idleConfig
	deciding.OnIdle = func(gnet.Conn, idle.Event) gnet.Action { return gnet.Shutdown }
	at, _, result = start(t, Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: deciding})
	c, err = net.Dial("tcp", at.String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, await(t, result), "OnIdle may ask for it as well")
}

func TestHandlerThatRefusesToBoot(t *testing.T) {
	require.NoError(t, run(t.Context(), Config{Addresses: []string{"127.0.0.1:0"}, Handler: &refuses{}, Idle: idleConfig}))
}

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

	for addr, want := range map[string]string{
		"nonsense":             `server: bad address "nonsense"`,
		"127.0.0.1:99999":      "99999",
		"udp://127.0.0.1:7000": "the scheme must be tcp, tcp4, tcp6 or unix",
		"tcp://127.0.0.1:1/x":  "a path after host:port",
		"tcp://u@127.0.0.1:0":  "users and abstract sockets are not supported",
		"tcp://127.0.0.1:0?x":  "a query or a fragment",
		"tcp://127.0.0.1:0#":   "a query or a fragment",
		"unix://":              "no path",
		"unix:/s":              "unknown port",
		"unix:///a#b":          "a query or a fragment",
		"unix:///a#":           "a query or a fragment",
		"unix:///a?b=c":        "a query or a fragment",
		"unix:///a%23b":        "a query or a fragment", // gnet would delete /a
		"unix:///a%3Fb":        "a query or a fragment",
		"unix://@abs":          "users and abstract sockets are not supported",
		"unix://./@abs":        "users and abstract sockets are not supported",
		"unix://u:p@/s":        "users and abstract sockets are not supported",
		"unix://./a@b/c":       "gnet cannot listen on this path", // gnet would delete b/c
		"unix:///a%00b":        "gnet cannot listen on this path",
		"unix:///a%2541":       "gnet cannot listen on this path",
		"unix://a:b":           "invalid port",
		"127.0.0.1:0 ":         "address",
		"":                     "Config.Addresses is not set",
	} {
		for _, addrs := range [][]string{{addr}, {"127.0.0.1:0", addr}} {
			if len(addrs) == 2 && addr == "" {
				want = `bad address ""`
			}
			_, err := New(Config{Addresses: addrs, Handler: &echo{}, Idle: idleConfig})
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, ErrBadConfig)
			require.ErrorIs(t, err, ErrBadAddress)
		}
	}
	for addr, want := range map[string]string{
		"192.0.2.1:7000":      "cannot listen: listen tcp 192.0.2.1:7000",
		"host.invalid:7000":   "cannot listen: lookup host.invalid", // the name may be known later
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

func TestUnixAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:///run/chat.sock": "/run/chat.sock", "unix:///run/../s/": "/s", "unix:///a@b:c": "/a@b:c", "unix:///a%20b": "/a b",
		"unix:///@abs": "/@abs", "unix://run/s": "run/s", "unix://./s": "s", "unix://s": "s", "unix:///é": "/é",
	} {
		network, at, err := split(addr)
		require.NoError(t, err, addr)
		require.Equal(t, "unix", network)
		require.Equal(t, want, at)
		_, again, err := split(urlsOf([]address{{network, &net.UnixAddr{Name: at, Net: network}}})[0])
		require.NoError(t, err, addr)
		require.Equal(t, want, again, "a restart listens on the same path")
	}
}

func TestAddressesThatDoNotGoTogetherAreRefused(t *testing.T) {
	for want, cfg := range map[string]Config{
		`Config.Addresses has "127.0.0.1:7000" twice`:                 {Addresses: []string{"127.0.0.1:7000", "127.0.0.1:7000"}},
		"Config.ReusePort is set, and Config.Addresses has a unix":    {Addresses: []string{"127.0.0.1:0", "unix:///s"}, ReusePort: true},
		"Config.ReusePort and Config.OneAcceptor are set: set one of": {Addresses: []string{"127.0.0.1:0"}, ReusePort: true, OneAcceptor: true},
	} {
		cfg.Handler, cfg.Idle = &echo{}, idleConfig
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, ErrBadConfig)
	}
	free := freePort(t)
	err := run(t.Context(), Config{Addresses: []string{":" + free, "127.0.0.1:" + free}, Handler: &echo{}, Idle: idleConfig})
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the second address is part of the first")
	require.ErrorContains(t, err, "127.0.0.1:"+free)
}

func freePort(t *testing.T) string {
	t.Helper()
	addrs, err := claimAll([]string{":0"}, false)
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(addrs[0].addr.String())
	require.NoError(t, err)
	return port
}

func TestSeveralAddresses(t *testing.T) {
	socket := "unix://" + filepath.Join(shortDir(t), "s")
	for name, cfg := range map[string]Config{
		"two of TCP":                {Addresses: []string{"127.0.0.1:0", "tcp4://127.0.0.1:0"}},
		"two of TCP, one acceptor":  {Addresses: []string{"127.0.0.1:0", "tcp4://127.0.0.1:0"}, OneAcceptor: true},
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
					c, err := net.Dial(at.Network(), at.String())
					require.NoError(t, err)
					defer c.Close()
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

	ln, err := net.Listen("unix", name)
	require.NoError(t, err)
	err = run(t.Context(), cfg)
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
func requireDatagramSocketIsKept(t *testing.T, name string) {
	t.Helper()
	pc, err := net.ListenPacket("unixgram", name)
	require.NoError(t, err)
	defer pc.Close()
	err = run(t.Context(), Config{Addresses: []string{"unix://" + name}, Handler: &echo{}, Idle: idleConfig})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.FileExists(t, name)
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "server")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestALimitOfTCPAndAUnixSocket fills a server that listens on both. The unix socket cannot be
// paused.
func TestALimitOfTCPAndAUnixSocket(t *testing.T) {
	s, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0", "unix://" + filepath.Join(shortDir(t), "s")}, Handler: &echo{},
		Idle: idle.Config{
			ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 3,
			Refusal: func(gnet.Conn) []byte { return []byte("full") },
		},
	})
	defer stop()
	dial := func(addr net.Addr) net.Conn {
		c, err := net.Dial(addr.Network(), addr.String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	var conns []net.Conn
	for _, addr := range []net.Addr{s.Addrs()[0], s.Addrs()[1], s.Addrs()[0]} {
		c := dial(addr)
		require.NoError(t, pingPong(c, 10*time.Second))
		conns = append(conns, c)
	}
	require.Eventually(t, func() bool { return s.Stats().Paused }, 10*time.Second, time.Millisecond)
	refusal, err := io.ReadAll(dial(s.Addrs()[1]))
	require.NoError(t, err)
	require.Equal(t, "full", string(refusal))
	require.EqualValues(t, 1, s.Stats().Rejected.MaxConnections)
	conns[0].Close()
	conns[1].Close()
	for _, addr := range s.Addrs() {
		require.Eventually(t, func() bool { return pingPong(dial(addr), 10*time.Second) == nil }, 10*time.Second, 10*time.Millisecond)
	}
}

// TestEngineThatDiesIsReported runs a server out of descriptors, in a process of its own.
func TestEngineThatDiesIsReported(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=dies")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	addr := lines.Text()
	for range 100 { // more than the child may open
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break // it has died
		}
		defer c.Close()
	}
	require.True(t, lines.Scan())
	require.Regexp(t, `^true server: the gnet engine died on 127\.0\.0\.1:\d+: .*too many open files`, lines.Text())
	require.NoError(t, cmd.Wait())
}

// TestEngineThatDiesIsStartedAgain runs the first engine of a server out of descriptors.
func TestEngineThatDiesIsStartedAgain(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=restarts")
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	addr := lines.Text()
	for range 100 {
		if c, err := net.Dial("tcp", addr); err == nil {
			defer c.Close()
		}
	}
	require.True(t, lines.Scan())
	require.Equal(t, addr, lines.Text(), "on the same address")
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err, "it serves again")
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Contains(t, log.String(), "the engine has died and is started again")
	require.Contains(t, log.String(), "restarts=1")
}

// TestARestartWaitsForAnAddressInUse lets another server listen on an address of an engine that has
// died.
func TestARestartWaitsForAnAddressInUse(t *testing.T) {
	h := &keepsEngine{booted: make(chan gnet.Engine, 10)}
	var log syncbuf.Buffer
	s, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0", "127.0.0.1:0"}, Handler: h, Idle: idle.Config{ReadTimeout: time.Minute}, Restart: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer stop()
	go (<-h.booted).Stop(t.Context())
	var other net.Listener
	require.Eventually(t, func() (ok bool) {
		var err error
		other, err = net.Listen("tcp", s.Addrs()[1].String())
		return err == nil
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "address already in use") }, 10*time.Second, time.Millisecond)
	require.NoError(t, other.Close())
	<-h.booted
	for _, addr := range s.Addrs() {
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", addr.String())
			if err != nil {
				return false
			}
			defer c.Close()
			return pingPong(c, 10*time.Second) == nil
		}, 10*time.Second, 10*time.Millisecond)
	}
	require.GreaterOrEqual(t, s.Stats().Restarts, uint64(2))
}

// A keepsEngine is an echo server that gives away its engines.
type keepsEngine struct {
	echo
	booted chan gnet.Engine
}

func (h *keepsEngine) OnBoot(eng gnet.Engine) gnet.Action {
	h.booted <- eng
	return gnet.None
}

func TestTheTimeBetweenRestartsGrows(t *testing.T) {
	var b backoff
	for _, step := range []struct{ lived, want time.Duration }{
		{0, minPause}, {0, 2 * minPause}, {0, 4 * minPause}, {healthyLife, minPause}, {0, 2 * minPause},
	} {
		require.Equal(t, step.want, b.next(step.lived))
	}
	for range 100 {
		require.LessOrEqual(t, b.next(0), maxPause)
	}
	require.Equal(t, 105, b.deaths)
}

// runOutOfDescriptors serves, and lowers the limit of descriptors that the server relies on.
func runOutOfDescriptors(restart bool) {
	var usual syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual); err != nil {
		panic(err)
	}
	few := usual
	few.Cur = 64
	limit := func(to syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &to); err != nil {
			panic(err)
		}
	}
	starts := 0
	err := run(context.Background(), Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, Restart: restart,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnStarted: func(s *Server) {
			if starts++; starts == 1 {
				limit(few)
			} else {
				limit(usual)
			}
			fmt.Println(s.Addr())
		},
	})
	fmt.Println(errors.Is(err, ErrEngineDied), err)
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
