package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

const testToken = "0123456789abcdef0123456789abcdef"

// startOnFIFO starts serve with a FIFO as the file of the token. It returns when the process is
// about to read the FIFO, and the file that writes to it.
func startOnFIFO(t *testing.T, flags ...string) (p *process, token *os.File) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "token")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	p = startProcess(t, commandEnv+"=1", append([]string{"serve", "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--admin-token-file", fifo}, flags...)...)
	require.Eventually(t, func() (ok bool) {
		var err error
		token, err = os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails without a reader
		return err == nil
	}, 20*time.Second, time.Millisecond)
	t.Cleanup(func() { token.Close() })
	return p, token
}

// TestHangupDuringTheStartIsDoneLater sends SIGHUP while the flags are parsed.
func TestHangupDuringTheStartIsDoneLater(t *testing.T) {
	limits := filepath.Join(t.TempDir(), "limits")
	require.NoError(t, os.WriteFile(limits, []byte("read-timeout 1h\n"), 0o600))
	p, token := startOnFIFO(t, "--limits", limits)
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	time.Sleep(100 * time.Millisecond)
	_, err := token.WriteString(testToken)
	require.NoError(t, err)
	require.NoError(t, token.Close())
	require.Contains(t, p.line(t), "listening on")
	require.Contains(t, p.line(t), "admin on")
	require.Contains(t, p.line(t), "reloaded: read-timeout 1h0m0s")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exitCode(t, 20*time.Second))
}

// TestSigtermEndsAStartThatHangs leaves the FIFO without a writer that writes.
func TestSigtermEndsAStartThatHangs(t *testing.T) {
	t.Parallel()
	p, _ := startOnFIFO(t)
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	p.exitCode(t, 20*time.Second)
	require.Equal(t, syscall.SIGTERM, p.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%s", &p.stderr)
}

// TestServePrintsEachSettingOnce starts serve with a file of limits, and reloads another file.
func TestServePrintsEachSettingOnce(t *testing.T) {
	limits := filepath.Join(t.TempDir(), "limits")
	require.NoError(t, os.WriteFile(limits, []byte("read-timeout 1h\n"), 0o600))
	p, _ := startServe(t, "--addr", "127.0.0.1:0", "--limits", limits)
	all := p.stdout.Text()
	require.NoError(t, os.WriteFile(limits, []byte("read-timeout 2h\n"), 0o600))
	require.NoError(t, p.Process.Signal(syscall.SIGHUP))
	require.Contains(t, p.line(t), "reloaded: read-timeout 2h0m0s")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exitCode(t, 20*time.Second))

	log := p.stderr.String()
	change := "msg=\"configuration changed\" idle.read-timeout=2h0m0s\n"
	require.Contains(t, log, change, "nothing else has changed")
	all += strings.Replace(log, change, "", 1)
	for _, setting := range []string{"read-timeout", "output-limit", "output-total", "max-connections", "keep-closed", "tick", "loops"} {
		require.Equal(t, 1, strings.Count(all, setting), "%s in %s", setting, all)
	}
}

// A systemd receives the notifications of a service.
type systemd struct{ *net.UnixConn }

// next returns the lines of the next notification.
func (s systemd) next(t *testing.T) []string {
	t.Helper()
	require.NoError(t, s.SetReadDeadline(time.Now().Add(20*time.Second)))
	b := make([]byte, 4096)
	n, err := s.Read(b)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(b[:n])), "\n")
}

// TestSystemdIsNotified starts, reloads and stops a service of Type=notify-reload.
func TestSystemdIsNotified(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{filepath.Join(dir, "notify"), "@idlewheel-test-" + strconv.Itoa(os.Getpid())} {
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		require.NoError(t, err)
		s := systemd{socket}
		defer s.Close()
		limits := filepath.Join(dir, "limits")
		require.NoError(t, os.WriteFile(limits, []byte("read-timeout 1h\n"), 0o600))
		t.Setenv("NOTIFY_SOCKET", name)

		p, _ := startServe(t, "--addr", "127.0.0.1:0", "--limits", limits)
		require.Equal(t, "READY=1", s.next(t)[0])
		for lines, status := range map[string]string{
			"read-timeout 2h\n":   "STATUS=reloaded: read-timeout 2h0m0s",
			"read-timeout soon\n": `STATUS=not reloaded: ` + limits + `, line 1: read-timeout: "soon" is not a duration`,
		} {
			require.NoError(t, os.WriteFile(limits, []byte(lines), 0o600))
			var before unix.Timespec
			require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &before))
			require.NoError(t, p.Process.Signal(syscall.SIGHUP))
			reloading := s.next(t)
			require.Equal(t, "RELOADING=1", reloading[0])
			at := regexp.MustCompile(`^MONOTONIC_USEC=(\d+)$`).FindStringSubmatch(reloading[1])
			require.NotNil(t, at)
			micros, err := strconv.ParseInt(at[1], 10, 64)
			require.NoError(t, err)
			require.GreaterOrEqual(t, micros, before.Nano()/1000, "systemd drops an answer that is older than its signal")
			require.Less(t, micros, before.Nano()/1000+20e6)
			ready := s.next(t)
			require.Equal(t, "READY=1", ready[0])
			require.Contains(t, ready[1], status)
		}
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		require.Equal(t, "STOPPING=1", s.next(t)[0])
		require.Zero(t, p.exitCode(t, 20*time.Second))
	}
}

// TestAServiceManagerThatIsGoneIsLogged has a socket of a service manager that does not exist.
func TestAServiceManagerThatIsGoneIsLogged(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	p, _ := startServe(t, "--addr", "127.0.0.1:0")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exitCode(t, 20*time.Second))
	require.Contains(t, p.stderr.String(), `msg="systemd was not notified" state="READY=1"`)
}

// startServeInto starts serve in a process of its own with an output that is a pipe of 4 KB, which
// may be full already. It returns the read end of the pipe and the address of the server.
func startServeInto(t testing.TB, full bool, flags ...string) (p *process, output *os.File, addr string) {
	t.Helper()
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	addr = ln.Addr().String()
	require.NoError(t, ln.Close())
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
	args := append([]string{"serve", "--addr", addr, "--log-level", "debug"}, flags...)
	return startProcessInto(t, w, commandEnv+"=1", args...), r, addr
}

// dialServe connects to a server that may be about to start. A connection from the same address
// may have the port of the server, and find itself.
func dialServe(t testing.TB, addr string) (c net.Conn) {
	t.Helper()
	other := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	require.Eventually(t, func() bool {
		var err error
		c, err = other.Dial("tcp", addr)
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
func requireServes(t testing.TB, p *process, addr string, d time.Duration) {
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

// TestAnOutputThatIsNotReadStopsNothing leaves all lines of the output in a pipe, which is full, or
// closes the read end: each write fails.
func TestAnOutputThatIsNotReadStopsNothing(t *testing.T) {
	for _, full := range []bool{true, false} {
		fair.RunParallel(t, fmt.Sprintf("full=%t", full), func(t testing.TB) {
			p, output, addr := startServeInto(t, full, floodFlags...)
			if !full {
				_, err := output.Read(make([]byte, 1)) // it has started
				require.NoError(t, err)
				require.NoError(t, output.Close())
			}
			requireServes(t, p, addr, floodTime())
		})
	}
}

// TestAStalledOutputDoesNotDelayAnError leaves the line of an error in the pipe.
func TestAStalledOutputDoesNotDelayAnError(t *testing.T) {
	t.Parallel()
	p, _, _ := startServeInto(t, true, "--loops", "many")
	require.Equal(t, 2, p.exitCode(t, 10*time.Second))
}
