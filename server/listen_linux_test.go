package server

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
)

func TestAddressesAreParsed(t *testing.T) {
	for addr, want := range map[string]address{
		"127.0.0.1:7000": {"tcp", "127.0.0.1:7000"}, ":0": {"tcp", ":0"}, "localhost:http": {"tcp", "localhost:http"},
		"tcp4://127.0.0.1:0": {"tcp4", "127.0.0.1:0"}, "tcp6://[::1]:0": {"tcp6", "[::1]:0"}, "fd://3": {"fd", "3"},
		"unix:///run/chat.sock": {"unix", "/run/chat.sock"}, "unix:///a%20b": {"unix", "/a%20b"}, "unix:///a#b?c": {"unix", "/a#b?c"},
		"unix://@chat": {"unix", "@chat"},
	} {
		got, mistake := parseAddress(addr)
		require.Empty(t, mistake, addr)
		require.Equal(t, want, got, addr)
		again, mistake := parseAddress(got.String())
		require.Empty(t, mistake, addr)
		require.Equal(t, want.at, again.at)
	}
	for addr, want := range map[string]string{
		"": "missing port", "nonsense": "missing port", "127.0.0.1:99999": "invalid port", "127.0.0.1:0 ": "unknown port",
		"udp://127.0.0.1:7000": "the scheme must be tcp, tcp4, tcp6, unix or fd", "tcp://127.0.0.1:1/x": "unknown port",
		"tcp://u@127.0.0.1:0?x": "unknown port", "unix://": "set an absolute path", "unix:///" + strings.Repeat("s", 107): "the path has 108 bytes: set at most 107",
		"unix://s": "set an absolute path", "unix:///": "set an absolute path",
		"unix://./s": "set an absolute path", "unix://@": "set an absolute path", "unix:/run/s": "write unix:///path", "/run/s": "write unix:///path", "unix:s": "write unix:///path",
		"fd://": "set the number", "fd://x": "set the number", "fd://2": "set the number", "fd://-1": "set the number", "fd://99999999999999999999": "set the number",
	} {
		_, mistake := parseAddress(addr)
		require.Contains(t, mistake, want, addr)
	}
}

// all is listenAll with the context of the test.
func all(t testing.TB, share bool, addrs ...string) ([]net.Listener, error) {
	t.Helper()
	return listenAll(t.Context(), addrs, share)
}

// TestOneOfTwoServersListens has servers listen on the same address at the same moment, on a unix
// socket that a dead server has left behind.
func TestOneOfTwoServersListens(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	for round := range 200 {
		addr := "unix://" + name
		if round%2 == 0 {
			ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
			addr = ln.Addr().String()
			require.NoError(t, ln.Close())
		} else {
			dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
			require.NoError(t, err)
			dead.SetUnlinkOnClose(false)
			require.NoError(t, dead.Close())
		}
		var starting sync.WaitGroup
		var mu sync.Mutex
		var open []net.Listener
		for range 4 {
			starting.Go(func() {
				lns, err := all(t, false, addr)
				if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				open = append(open, lns...)
			})
		}
		starting.Wait()
		require.Len(t, open, 1)
		c, err := net.Dial(open[0].Addr().Network(), open[0].Addr().String())
		require.NoError(t, err, "its socket is there")
		require.NoError(t, c.Close())
		require.NoError(t, open[0].Close())
	}
}

func TestABoundSocketThatDoesNotListenYetIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}))
	_, err = all(t, false, "unix://"+name)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.NoError(t, syscall.Close(fd))
	lns, err := all(t, false, "unix://"+name)
	require.NoError(t, err)
	require.NoError(t, lns[0].Close())
}

func TestAllOrNone(t *testing.T) {
	first, err := all(t, false, "127.0.0.1:0")
	require.NoError(t, err)
	addr := first[0].Addr().String()
	require.NoError(t, first[0].Close())
	name := filepath.Join(t.TempDir(), "s")
	_, err = all(t, false, addr, "unix://"+name, "192.0.2.1:0")
	require.ErrorContains(t, err, "server: cannot listen: listen tcp 192.0.2.1:0")
	require.NoFileExists(t, name)
	again, err := all(t, false, addr, "unix://"+name, "unix://@"+name)
	require.NoError(t, err)
	for _, ln := range again {
		require.NoError(t, ln.Close())
	}
	require.NoFileExists(t, name)
}

func TestADirectoryThatTakesNoSocket(t *testing.T) {
	for addr, want := range map[string]string{"/proc/s": "listen unix /proc/s: bind: ", "/no/s": "open /no: "} {
		_, err := all(t, false, "unix://"+addr)
		require.ErrorContains(t, err, "server: cannot listen: "+want)
	}
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		unlock, err := lock(dir)
		require.NoError(t, err)
		defer unlock()
		_, err = all(t, false, "unix://"+dir+"/s")
		require.ErrorContains(t, err, "server: cannot listen: locking "+dir)
	})
}

func TestASocketThatWasReplacedIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "s")
	first, err := all(t, false, "unix://"+name)
	require.NoError(t, err)
	require.NoError(t, os.Remove(name))
	second, err := all(t, false, "unix://"+name)
	require.NoError(t, err)
	require.NoError(t, first[0].Close())
	require.FileExists(t, name)
	require.NoError(t, second[0].Close())
	require.NoFileExists(t, name)
}

// TestOtherDescriptorsAreNotClosed gives the number of a file that is not an inherited socket.
func TestOtherDescriptorsAreNotClosed(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	_, err = all(t, false, "fd://"+strconv.Itoa(int(null.Fd())))
	require.ErrorContains(t, err, "is not an inherited socket that listens")
	_, err = null.Stat()
	require.NoError(t, err)
}

func TestAnInheritedSocket(t *testing.T) {
	ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
	file, err := ln.(*net.TCPListener).File()
	require.NoError(t, err)
	number, err := syscall.Dup(int(file.Fd()))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, ln.Close())
	at := "fd://" + strconv.Itoa(number)
	inherited, err := all(t, false, at)
	require.NoError(t, err)
	require.Equal(t, ln.Addr(), inherited[0].Addr())
	require.NoError(t, inherited[0].Close())
	_, err = all(t, false, at)
	require.ErrorContains(t, err, "server: cannot listen: "+at+" is not an inherited socket that listens")
	bound, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Bind(bound, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	_, err = all(t, false, "fd://"+strconv.Itoa(bound))
	require.ErrorContains(t, err, "is not an inherited socket that listens")
}

// sharing is the Config of a server that shares its port and drains quickly.
func sharing(addr string) Config {
	return Config{
		Addresses: []string{addr}, Idle: idle.Config{ReadTimeout: time.Minute}, NumEventLoop: 4, ReusePort: true,
		Drain: Drain{Spread: 50 * time.Millisecond, Timeout: 100 * time.Millisecond},
	}
}

// TestARollingRestartLosesNoClient stops a server while another one listens on the same port. A new
// client is served there, or refused at once and may retry.
func TestARollingRestartLosesNoClient(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		cfg := sharing("127.0.0.1:0")
		cfg.Drain = Drain{Spread: 100 * time.Millisecond, Timeout: 3 * time.Second}
		old, stopOld, ended := launch(t, cfg)
		addr := old.Addr().String()
		held := visit(t, old.Addr())
		_, stopFresh := startIn(t, sharing(addr))
		stopOld()
		require.Eventually(t, func() bool { return old.Stats().Draining }, time.Minute, time.Millisecond)
		served, refused := 0, 0
		for served < 20 {
			_, _ = held.Write([]byte("x")) // it is busy, so that the old server stays for a while
			c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
			if err == nil {
				err = pingPong(c, 10*time.Second)
				c.Close()
			}
			if err == nil {
				served++
				continue
			}
			// It was in the queue of the old server, which has closed it.
			var timeout net.Error
			require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "no client has to wait: %v", err)
			refused++
			require.Less(t, refused, 10)
		}
		t.Logf("20 were served, %d were refused at once and retried", refused)
		require.NoError(t, await(t, ended))
		stopFresh()
	})
}

// shortQueue listens on a unix socket with a short queue of the kernel.
func shortQueue(t *testing.T, name string, queue int) net.Listener {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}))
	require.NoError(t, syscall.Listen(fd, queue))
	ln, err := net.FileListener(f)
	require.NoError(t, err)
	return ln
}

// TestAFullUnixSocketAnswersEAGAIN fills the queue of the kernel behind a full server. No client
// that waits is lost.
func TestAFullUnixSocketAnswersEAGAIN(t *testing.T) {
	const queue = 4
	ln := shortQueue(t, filepath.Join(shortDir(t), "s"), queue)
	s, stop := startIn(t, Config{
		Listeners: []net.Listener{ln}, NumEventLoop: 1,
		Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 1},
	})
	defer stop()
	served := visit(t, s.Addr())
	var waiting []net.Conn
	c, err := net.Dial("unix", s.Addr().String())
	for ; err == nil; c, err = net.Dial("unix", s.Addr().String()) {
		waiting = append(waiting, c)
	}
	require.ErrorIs(t, err, syscall.EAGAIN)
	require.GreaterOrEqual(t, len(waiting), queue)
	answered := make(chan net.Conn, len(waiting)) // two acceptors may exchange two clients
	for _, c := range waiting {
		go func() {
			if pingPong(c, time.Minute) == nil {
				answered <- c
			}
		}()
	}
	for range waiting {
		require.NoError(t, served.Close())
		select {
		case served = <-answered:
		case <-time.After(20 * time.Second):
			require.Fail(t, "no client that waits is served")
		}
	}
	require.NoError(t, served.Close())
}
