package idlenet

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
)

// keepAliveOf returns whether the kernel probes the peer, and how long it waits.
func keepAliveOf(t testing.TB, own socket) (on int, timeout time.Duration) {
	t.Helper()
	require.NoError(t, control(own, func(fd uintptr) {
		on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		ms, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		timeout = time.Duration(ms) * time.Millisecond
	}))
	return on, timeout
}

func TestUpdateOfTCPKeepAlive(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: 40 * time.Second, Tick: 20 * time.Millisecond})
	e.dial()
	own, _ := e.root(e.accepted())
	for _, d := range []time.Duration{40 * time.Second, time.Minute, 0} {
		require.NoError(t, e.Update(func(cfg *Config) { cfg.TCPKeepAlive = d }))
		eventually(t, "the socket follows", func() bool {
			on, timeout := keepAliveOf(t, own)
			return timeout == d && on == 1 == (d > 0)
		})
	}
}

// TestTCPKeepAliveOfAConnectionBetweenTwoSettings adds a connection to a shard that has followed an
// Update, after it was accepted by the settings before.
func TestTCPKeepAliveOfAConnectionBetweenTwoSettings(t *testing.T) {
	e := newEcho(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: time.Minute})
	e.dial()
	c := e.accepted()
	own, _ := e.root(c)
	e.with(c, func(s *shard, id uint32, n *conn) { s.Drop(id, n) })
	require.NoError(t, e.Update(func(cfg *Config) { cfg.TCPKeepAlive = 40 * time.Second }))
	e.watch.Open.Add(1)
	e.startDriver()
	e.shard(own).add(own, own, 0)
	_, timeout := keepAliveOf(t, own)
	require.Equal(t, 40*time.Second, timeout)
}

// TestATypeThatEmbedsATCPConn is reset and probed as what it embeds. One that is no pointer is
// refused: it has no address that could be its name.
func TestATypeThatEmbedsATCPConn(t *testing.T) {
	t.Parallel()
	type embedding struct{ *net.TCPConn }
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	e := serveEcho(t, wrapped{inner, func(c net.Conn) net.Conn { return &embedding{c.(*net.TCPConn)} }}, Config{
		ReadTimeout: short, TCPKeepAlive: time.Minute, Reset: []Reason{reap.ReadIdle},
	})
	client := e.dial()
	own, ok := e.root(e.accepted())
	require.True(t, ok)
	_, timeout := keepAliveOf(t, own)
	require.Equal(t, time.Minute, timeout)
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = e.Watch(embedding{new(net.TCPConn)})
	require.ErrorContains(t, err, "is a socket, but not a pointer")
}
