package server

import (
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
)

func TestTheGateIsOfOneAddress(t *testing.T) {
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer all.Close()
	port := all.Addr().(*net.TCPAddr).Port
	find := func(ip net.IP) []int {
		fds, err := listeners(address{"tcp", &net.TCPAddr{IP: ip, Port: port}})
		if err != nil {
			require.ErrorContains(t, err, "listens on")
		}
		return fds
	}
	require.Len(t, find(nil), 1)
	require.Len(t, find(net.IPv4zero), 1)
	require.Len(t, find(net.IPv6zero), 1)
	require.Empty(t, find(net.IPv4(127, 0, 0, 1)), "it listens there as well, for another server")
	one, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer one.Close()
	port = one.Addr().(*net.TCPAddr).Port
	require.Len(t, find(net.IPv4(127, 0, 0, 1)), 1)
	require.Empty(t, find(nil), "another server has one address of all")
	_, err = listeners(address{"unix", &net.UnixAddr{Name: "x", Net: "unix"}})
	require.ErrorContains(t, err, "only TCP")
}

func TestTheGateIsPreparedOnceThereIsADescriptor(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	g := newGate(address{"tcp", ln.Addr()}, slog.New(slog.DiscardHandler), func() bool { return true }, new(atomic.Uint64))
	defer g.forget()
	defer g.end()

	var usual unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	next, ok := freeDescriptor()
	require.True(t, ok)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: usual.Max}))
	g.prepare()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual))
	require.False(t, g.ready.Load())
	g.shut("nobody can tell what to pause", func() { t.Error("it is not shut") })

	g.prepare()
	require.Len(t, g.fds, 1)
	g.shut("the test wants it", func() {})
	require.Eventually(t, func() bool { return !g.closed.Load() }, 10*time.Second, time.Millisecond, "there is room")
	c, err := net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// TestServersThatShareAPortPauseTheirOwnSockets lets one go, which pauses its listeners, while another one serves.
func TestServersThatShareAPortPauseTheirOwnSockets(t *testing.T) {
	cfg := Config{
		Addr: "127.0.0.1:0", Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, Loops: 2, SharePort: true,
		Drain: Drain{Spread: 500 * time.Millisecond, Timeout: time.Second},
	}
	first, stopFirst := startIn(t, cfg)
	addr := first.Addr().String()
	require.Eventually(t, func() bool { // the engine opens them one by one
		fds, err := listeners(address{"tcp", first.Addr()})
		return err == nil && len(fds) == cfg.Loops
	}, 10*time.Second, time.Millisecond)
	cfg.Addr = addr
	second, stopSecond := startIn(t, cfg)
	stopFirst()
	require.Zero(t, first.Stats().Pauses, "a drain is none")
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		require.NoError(t, err)
		require.NoError(t, pingPong(c, 10*time.Second))
		require.NoError(t, c.Close())
	}
	require.Zero(t, second.Stats().Pauses)
	stopSecond()
}
