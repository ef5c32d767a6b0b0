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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
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

// start runs a server and returns its address, a function that stops it, and the result of Run.
func start(t *testing.T, cfg Config) (addr net.Addr, stop func(), result <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan net.Addr, 1)
	cfg.Started = func(s *Server) { started <- s.Addr() }
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	select {
	case addr = <-started:
	case err := <-done:
		t.Fatalf("Run returned: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("not started within 10 s")
	}
	t.Cleanup(cancel)
	return addr, cancel, done
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
			at, stop, result := start(t, Config{Addr: addr, Handler: &echo{}, Idle: idleConfig, Loops: 2})
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
	at, _, result := start(t, Config{Addr: "127.0.0.1:0", Handler: &echo{action: gnet.Shutdown}, Idle: idleConfig})
	c, err := net.Dial("tcp", at.String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, await(t, result))

	deciding := idleConfig
	deciding.OnIdle = func(gnet.Conn, idle.Event) gnet.Action { return gnet.Shutdown }
	at, _, result = start(t, Config{Addr: "127.0.0.1:0", Handler: &echo{}, Idle: deciding})
	c, err = net.Dial("tcp", at.String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, await(t, result), "nor is it one from OnIdle")
}

func TestHandlerThatRefusesToBoot(t *testing.T) {
	require.NoError(t, Run(t.Context(), Config{Addr: "127.0.0.1:0", Handler: &refuses{}, Idle: idleConfig}))
}

type refuses struct{ echo }

func (*refuses) OnBoot(gnet.Engine) gnet.Action { return gnet.Shutdown }

func TestContextThatIsDoneAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, Run(ctx, Config{Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idleConfig}))
}

func TestStopWhileBooting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idleConfig}
	cfg.Started = func(*Server) { cancel() }
	result := make(chan error, 1)
	go func() { result <- Run(ctx, cfg) }()
	require.NoError(t, await(t, result))
}

func TestBadConfigIsRefused(t *testing.T) {
	err := Run(t.Context(), Config{Loops: -1})
	require.ErrorContains(t, err, "Config.Addr is not set")
	require.ErrorContains(t, err, "Config.Handler is nil")
	require.ErrorContains(t, err, "Config.Loops is -1")

	for addr, want := range map[string]string{
		"nonsense":             `address "nonsense"`,
		"127.0.0.1:99999":      "99999",
		"udp://127.0.0.1:7000": "the scheme must be tcp, tcp4, tcp6 or unix",
		"tcp://127.0.0.1:1/x":  "a path after host:port",
		"unix://":              "no path",
		"127.0.0.1:0 ":         "address",
		"192.0.2.1:7000":       "192.0.2.1:7000",
	} {
		require.ErrorContains(t, Run(t.Context(), Config{Addr: addr, Handler: &echo{}, Idle: idleConfig}), want)
	}
	err = Run(t.Context(), Config{Addr: "nobody.invalid:7000", Handler: &echo{}, Idle: idleConfig})
	require.ErrorContains(t, err, "cannot listen: lookup nobody.invalid")
	require.NotErrorIs(t, err, ErrBadConfig, "it may be known soon")
	require.ErrorContains(t, Run(t.Context(), Config{Addr: "127.0.0.1:0", Handler: &echo{}}), "no limit is set")
}

func TestAddressInUseIsNamed(t *testing.T) {
	cfg := Config{Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idleConfig, SharePort: true}
	at, stop, result := start(t, cfg)
	second := Config{Addr: at.String(), Handler: &echo{}, Idle: idleConfig}
	err := Run(t.Context(), second)
	require.ErrorContains(t, err, at.String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	second.SharePort = true
	_, stopSecond, secondResult := start(t, second)
	stopSecond()
	require.NoError(t, await(t, secondResult), "unless it is to be shared")
	stop()
	require.NoError(t, await(t, result))
}

func TestUnixSocketOfOthersIsNotDeleted(t *testing.T) {
	name := filepath.Join(shortDir(t), "s")
	cfg := Config{Addr: "unix://" + name, Handler: &echo{}, Idle: idleConfig}
	require.NoError(t, os.WriteFile(name, []byte("precious"), 0o600))
	require.ErrorContains(t, Run(t.Context(), cfg), "not a socket")
	require.FileExists(t, name)
	require.NoError(t, os.Remove(name))

	ln, err := net.Listen("unix", name)
	require.NoError(t, err)
	err = Run(t.Context(), cfg)
	require.ErrorContains(t, err, name+": address already in use")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, ln.Close())
	requireGramIsKept(t, name+"gram")
	_, stop, result := start(t, cfg) // what a dead server has left behind is no obstacle
	stop()
	require.NoError(t, await(t, result))
}

// requireGramIsKept checks that a live socket for datagrams, which refuses a stream in its own way, is not taken for a
// dead one.
func requireGramIsKept(t *testing.T, name string) {
	t.Helper()
	pc, err := net.ListenPacket("unixgram", name)
	require.NoError(t, err)
	defer pc.Close()
	err = Run(t.Context(), Config{Addr: "unix://" + name, Handler: &echo{}, Idle: idleConfig})
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

// TestEngineThatDiesIsReported lets a server run out of descriptors, in a process of its own.
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

// TestEngineThatDiesIsStartedAgain lets it run out of descriptors the first time.
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

func TestTheTimeBetweenRestartsGrows(t *testing.T) {
	s := &Server{}
	for _, step := range []struct{ lived, want time.Duration }{
		{0, minPause}, {0, 2 * minPause}, {0, 4 * minPause}, {soundFor, minPause}, {0, 2 * minPause},
	} {
		require.Equal(t, step.want, s.pauseAfter(step.lived))
	}
	for range 100 {
		require.LessOrEqual(t, s.pauseAfter(0), maxPause)
	}
	require.Equal(t, 105, s.deaths)
}

// runOutOfDescriptors serves, and takes away what it has counted on.
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
	err := Run(context.Background(), Config{
		Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, Restart: restart,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Started: func(s *Server) {
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
