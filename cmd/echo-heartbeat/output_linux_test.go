package main

import (
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

// startServeInto starts serve in a process of its own with an output that is a pipe of 4 KB, which
// may be full already. It returns the read end of the pipe and the address of the server.
func startServeInto(t *testing.T, full bool, flags ...string) (p *process, output *os.File, addr string) {
	t.Helper()
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	addr = ln.Addr().String()
	require.NoError(t, ln.Close())
	exe, err := os.Executable()
	require.NoError(t, err)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	require.NoError(t, err)
	if full {
		_, err = w.Write(make([]byte, size))
		require.NoError(t, err)
	}
	p = &process{Cmd: exec.Command(exe, append([]string{"serve", "--addr", addr, "--log-level", "debug"}, flags...)...), stderr: &syncbuf.Buffer{}}
	p.Env = append(os.Environ(), commandEnv+"=1", "GORACE=atexit_sleep_ms=0")
	p.Stdout, p.Stderr = w, w
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p, r, addr
}

// dialServe connects to a server that may be about to start.
func dialServe(t *testing.T, addr string) (c net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		c, err = net.DialTimeout("tcp", addr, 5*time.Second)
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	t.Cleanup(func() { c.Close() })
	return c
}

// flood opens connections that send nothing, until an instant.
func flood(addr string, until time.Time) {
	var open []net.Conn
	for time.Now().Before(until) {
		if c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond); err == nil {
			open = append(open, c)
		}
		if len(open) > 16 {
			open[0].Close()
			open = open[1:]
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, c := range open {
		c.Close()
	}
}

// requireServes checks that a server in a flood answers 32 active clients for a time. Then SIGTERM
// ends it.
func requireServes(t *testing.T, p *process, addr string, d time.Duration) {
	t.Helper()
	dialServe(t, addr).Close()
	until := time.Now().Add(d)
	var clients sync.WaitGroup
	for range 32 {
		clients.Go(func() {
			answers, err := roundTrips(addr, until, 20*time.Millisecond)
			assert.NoError(t, err)
			assert.Greater(t, len(answers), int(d/(200*time.Millisecond)))
		})
	}
	for range 4 {
		clients.Go(func() { flood(addr, until) })
	}
	clients.Wait()
	require.False(t, t.Failed())
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exitCode(t, 10*time.Second))
}

// floodTime is the length of a flood: IDLEWHEEL_LOG_FLOOD, such as 60s, or 3 seconds.
func floodTime() time.Duration {
	d, err := time.ParseDuration(os.Getenv("IDLEWHEEL_LOG_FLOOD"))
	if err != nil {
		return 3 * time.Second
	}
	return d
}

// floodFlags make a flood log much: reaps, rejected connections, and pauses of accepting.
var floodFlags = []string{"--read-timeout", "500ms", "--max-connections", "64", "--drain-timeout", "1s", "--drain-spread", "100ms"}

// TestAnOutputThatIsNotReadStopsNothing leaves all lines of the output in a pipe, which is full.
func TestAnOutputThatIsNotReadStopsNothing(t *testing.T) {
	t.Parallel()
	p, _, addr := startServeInto(t, true, floodFlags...)
	requireServes(t, p, addr, floodTime())
}

// TestAnOutputWithoutAReaderStopsNothing closes the read end of the output: each write fails.
func TestAnOutputWithoutAReaderStopsNothing(t *testing.T) {
	t.Parallel()
	p, output, addr := startServeInto(t, false, floodFlags...)
	_, err := output.Read(make([]byte, 1)) // it has started
	require.NoError(t, err)
	require.NoError(t, output.Close())
	requireServes(t, p, addr, floodTime())
}

// TestAStalledOutputDoesNotDelayAnError leaves the line of an error in the pipe.
func TestAStalledOutputDoesNotDelayAnError(t *testing.T) {
	t.Parallel()
	p, _, _ := startServeInto(t, true, "--loops", "many")
	require.Equal(t, 2, p.exitCode(t, 10*time.Second))
}
