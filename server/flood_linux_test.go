package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/prober"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// A flooded is the configuration of a child process of a flood test.
type flooded struct {
	Descriptors    uint64 // RLIMIT_NOFILE
	MaxConnections int
	Taken          int // descriptors that other parts of the process take once the server runs
}

// runFlooded is the main function of a child process: an echo server that ends with its standard
// input.
func runFlooded(child string) {
	var f flooded
	if err := json.Unmarshal([]byte(child), &f); err != nil {
		panic(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: f.Descriptors, Max: f.Descriptors}); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := run(ctx, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, NumEventLoop: 2,
		Idle:   idle.Config{ReadTimeout: time.Minute, MaxConnections: f.MaxConnections},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		OnStarted: func(s *Server) {
			for range f.Taken {
				if _, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
					panic(err)
				}
			}
			fmt.Println(s.Addr())
		},
	})
	fmt.Println(errors.Is(err, ErrTooFewDescriptors), err)
}

// A floodedChild is a child process of a flood test.
type floodedChild struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.Closer
	log   *syncbuf.Buffer
	addr  string
}

func startFlooded(t testing.TB, f flooded) *floodedChild {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	env, err := json.Marshal(f)
	require.NoError(t, err)
	c := &floodedChild{cmd: exec.Command(exe), log: &syncbuf.Buffer{}}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(env))
	c.cmd.Stderr = c.log
	c.stdin, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.lines = bufio.NewScanner(out)
	require.True(t, c.lines.Scan(), "it prints its address: %s", c.log)
	c.addr = c.lines.Text()
	return c
}

// end ends the child and returns the result of Run.
func (c *floodedChild) end(t testing.TB) string {
	t.Helper()
	require.NoError(t, c.stdin.Close())
	require.True(t, c.lines.Scan())
	return c.lines.Text()
}

// flood dials n connections at once and keeps them until the caller calls end.
func flood(t testing.TB, addr string, n int) (end func()) {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp4", addr)
	require.NoError(t, err)
	var fds []int
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		fds = append(fds, fd)
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
			require.ErrorIs(t, err, syscall.EINPROGRESS)
		}
	}
	return func() {
		for _, fd := range fds {
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			_ = unix.Close(fd)
		}
	}
}

// requireAccepts waits until a server accepts and answers, for at most a second. It dials often,
// because the kernel retries a dropped attempt after a second only.
func requireAccepts(t testing.TB, addr string) {
	t.Helper()
	began := time.Now()
	for {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err == nil {
			err = pingPong(c, time.Second)
			c.Close()
		}
		took := time.Since(began)
		if err == nil {
			t.Logf("the first is served %v after the flood", took)
		}
		if err == nil || took > time.Second {
			require.LessOrEqual(t, took, time.Second, "accepting again: %v", err)
			return
		}
	}
}

// requireProbesServed checks the probes during floods and between them. A probe during a flood
// competes with thousands for the room that there is. If it is dropped, the kernel retries after
// one second and after three, and most probes are served then.
func requireProbesServed(t testing.TB, probes prober.Probes, floods []prober.Span) {
	t.Helper()
	during, between := probes.Split(floods)
	t.Logf("during a flood: %v", during)
	t.Logf("between them: %v", between)
	require.NotEmpty(t, during)
	require.NotEmpty(t, between)
	require.LessOrEqual(t, during.Failed(), 1+len(during)/10)
	require.Zero(t, between.Failed())
	require.Less(t, between.Quantile(0.99), time.Second)
}

// TestFloods dials thousands of connections at once to a server with descriptors for a fraction of
// them.
// Active connections stay. After the flood a new client is served within a second.
func TestFloods(t *testing.T) {
	rounds, size := 1, 3000
	if needs.IsLong() {
		rounds, size = 3, 8000
	}
	if n, err := strconv.Atoi(os.Getenv("IDLEWHEEL_FLOODS")); err == nil {
		rounds = n
	}
	for _, tc := range []struct {
		name string
		flooded
	}{
		{"a limit of connections", flooded{Descriptors: 1000, MaxConnections: 800}},
		{"a limit of descriptors", flooded{Descriptors: 1000}},
		{"descriptors taken by something else", flooded{Descriptors: 17_000, Taken: 15_000}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needs.Descriptors(t, max(size, int(tc.Descriptors)))
			server := startFlooded(t, tc.flooded)
			var active []net.Conn
			for range 20 {
				c := sockets.Dial(t, "tcp", server.addr)
				active = append(active, c)
			}
			var over atomic.Bool
			var playing sync.WaitGroup
			defer playing.Wait()
			defer over.Store(true)
			for i, c := range active {
				playing.Go(func() {
					for !over.Load() {
						if !assert.NoError(t, pingPong(c, 20*time.Second), "active connection %d, log: %s", i, server.log) {
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			probing := prober.Start(t, server.addr)
			var floods []prober.Span
			served, tried := 0, 0
			for range rounds {
				began := time.Now()
				end := flood(t, server.addr, size)
				time.Sleep(1500 * time.Millisecond)
				end()
				requireAccepts(t, server.addr)
				floods = append(floods, prober.Span{From: began, To: time.Now()})
				for range 100 {
					tried++
					c, err := net.DialTimeout("tcp", server.addr, 5*time.Second)
					if err == nil {
						if err = pingPong(c, 5*time.Second); err == nil {
							served++
						}
						c.Close()
					}
				}
				time.Sleep(time.Second) // a pause for the prober
			}
			over.Store(true)
			playing.Wait()
			t.Logf("%d of %d new clients were served", served, tried)
			requireProbesServed(t, probing.End(), floods)
			require.GreaterOrEqual(t, served, tried*99/100)
			require.Equal(t, "false <nil>", server.end(t), "the engine lives until it is asked to stop")
			require.NotContains(t, server.log.String(), "too many open files")
			if tc.Taken > 0 {
				require.Contains(t, server.log.String(), "descriptors are short")
				return
			}
			require.Contains(t, server.log.String(), "accepting is paused")
			require.Contains(t, server.log.String(), "accepting resumes")
		})
	}
}
