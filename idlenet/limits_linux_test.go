package idlenet

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAHalfClosedConnectionEnds has a server that does not close connections. One peer ends its
// side, and one does not.
func TestAHalfClosedConnectionEnds(t *testing.T) {
	t.Parallel()
	const timeout = 400 * time.Millisecond
	ln, dial := serveDeaf(t, Config{HalfClosedTimeout: timeout})
	ended, conn := dial()
	_, kept := dial()
	time.Sleep(2 * timeout)
	require.Nil(t, ln.Reason(conn))
	_, err := ended.Write([]byte("the last bytes wait unread"))
	require.NoError(t, err)
	began := time.Now()
	require.NoError(t, ended.(*net.TCPConn).CloseWrite())
	eventually(t, "it ends", func() bool { return ln.Reason(conn) != nil })
	reason := ln.Reason(conn)
	require.ErrorIs(t, reason, reap.HalfClosed)
	require.Equal(t, timeout, reason.Limit)
	require.GreaterOrEqual(t, time.Since(began), timeout)
	require.GreaterOrEqual(t, reason.Lasted, timeout)
	require.True(t, strings.HasPrefix(reason.Error(), "idlenet: connection reaped: half closed for "), "%v", reason)
	require.Nil(t, ln.Reason(kept))
}

// TestLimitsOfOneConnection gives one connection each limit, and another one none of them.
func TestLimitsOfOneConnection(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	for want, limits := range map[Reason]ConnLimits{
		reap.ReadIdle:     {ReadTimeout: limit},
		reap.NoHandshake:  {HandshakeTimeout: limit},
		reap.BelowMinRate: {MinRate: MinRate{BytesPerSecond: 1000, Window: limit, Always: true}},
		reap.MaxAge:       {MaxAge: limit},
		reap.WriteStall:   {WriteStallTimeout: limit},
	} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			ln, dial := serveDeaf(t, Config{ReadTimeout: time.Hour, Tick: 20 * time.Millisecond})
			_, conn := dial()
			_, other := dial()
			if want == reap.WriteStall {
				go func() { _, _ = io.WriteString(conn, strings.Repeat("x", 16<<20)) }()
			}
			require.NoError(t, ln.conn(conn).SetLimits(limits))
			eventually(t, "it ends", func() bool { return ln.Reason(conn) != nil })
			require.ErrorIs(t, ln.Reason(conn), want)
			require.Nil(t, ln.Reason(other))
			require.ErrorContains(t, ln.conn(other).SetLimits(ConnLimits{MinRate: MinRate{Window: limit}}), "idlenet: MinRate.BytesPerSecond of a connection is 0")
			a, b := net.Pipe()
			defer func() { _, _ = a.Close(), b.Close() }()
			require.ErrorIs(t, ln.conn(a).SetLimits(limits), ErrNotWatched)
			require.ErrorContains(t, ln.conn(a).SetLimits(limits), "idlenet: the connection is not watched")
		})
	}
}

// A namedConn is a TCP socket with another address.
type namedConn struct{ net.Conn }

func (c namedConn) NetConn() net.Conn   { return c.Conn }
func (c namedConn) LocalAddr() net.Addr { return &net.UnixAddr{Name: "service"} }

// TestTheSocketDecidesWhichLimitsItKeeps asks a wrapped connection for limits that need TCP.
func TestTheSocketDecidesWhichLimitsItKeeps(t *testing.T) {
	t.Parallel()
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	e := serveEcho(t, wrapped{inner, func(c net.Conn) net.Conn { return namedConn{c} }}, Config{AllTimeout: time.Minute})
	e.dial()
	require.NoError(t, e.conn(e.accepted()).SetLimits(ConnLimits{AllTimeout: 2 * time.Minute}))
}

// TestASilenceHoldsVerdictsOfOwnLimits loses all packets of peers with limits of their own.
func TestASilenceHoldsVerdictsOfOwnLimits(t *testing.T) {
	w := newQuietWorld(t, Config{HandshakeTimeout: time.Hour, Tick: 20 * time.Millisecond})
	var all []*simLife
	for range 100 {
		l := w.accept()
		w.ln.conn(l.c).Ready()
		require.NoError(t, w.ln.conn(l.c).SetLimits(ConnLimits{ReadTimeout: 4 * time.Second}))
		l.SetTimeouts(sim.Timeouts{4 * time.Second})
		all = append(all, l)
	}
	for range 50 {
		for _, l := range all {
			l.Sock.Peer.Send(1)
			w.Sleep(time.Millisecond)
		}
	}
	w.Sleep(5 * time.Second)
	require.True(t, w.ln.Stats().Suspended)
	require.Zero(t, w.ln.Stats().Reaped.Total())
}

// TestSetLimitsNeedsTheKernel sets limits that the kernel cannot keep for a unix socket.
func TestSetLimitsNeedsTheKernel(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 10, Stamp: true})
	l := w.accept()
	w.addr = &net.UnixAddr{Net: "unix", Name: "simulated"}
	require.NoError(t, w.ln.conn(l.c).SetLimits(ConnLimits{ReadTimeout: time.Second}), "Stamp is enough")
	w = newQuietWorld(t, Config{MaxConnections: 10})
	l = w.accept()
	w.addr = &net.UnixAddr{Net: "unix", Name: "simulated"}
	for _, own := range []ConnLimits{
		{ReadTimeout: time.Second}, {AllTimeout: time.Second}, {WriteTimeout: time.Second}, {MinRate: MinRate{BytesPerSecond: 1}},
	} {
		require.ErrorContains(t, w.ln.conn(l.c).SetLimits(own), "TCP on Linux")
	}
	require.NoError(t, w.ln.conn(l.c).SetLimits(ConnLimits{ReadTimeout: -1, MaxAge: time.Second}))
}

// keepAliveOf returns how often the kernel probes the peer, and how long it waits.
func keepAliveOf(t testing.TB, own socket) (probes int, timeout time.Duration) {
	t.Helper()
	require.NoError(t, control(own, func(fd uintptr) {
		on, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		probes, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
		probes *= on
		ms, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		timeout = time.Duration(ms) * time.Millisecond
	}))
	return probes, timeout
}

func TestUpdateOfTCPKeepAlive(t *testing.T) {
	t.Parallel()
	var out syncbuf.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	e := newEcho(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: 40 * time.Second, Tick: 20 * time.Millisecond, Logger: log})
	e.dial()
	own, _ := e.root(e.accepted())
	for _, d := range []time.Duration{40 * time.Second, 24 * time.Hour, 0} {
		require.NoError(t, e.Update(func(cfg *Config) { cfg.TCPKeepAlive = d }))
		eventually(t, "the socket follows", func() bool {
			probes, timeout := keepAliveOf(t, own)
			return timeout == d && probes == map[bool]int{true: 4, false: 9}[d > 0] // 9 in package net
		})
	}
	for warns := range 2 {
		logging.Of(e.Config().Logger).Flush()
		require.Equal(t, warns, strings.Count(out.String(), "setting keepalive"))
		_ = own.Close()
		e.keepAlive(own, time.Minute)
	}
}

// TestTCPKeepAliveOfAConnectionBetweenTwoSettings adds a connection to a shard that has followed an
// Update, after it was accepted by the settings before.
func TestTCPKeepAliveOfAConnectionBetweenTwoSettings(t *testing.T) {
	e := newEcho(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: time.Minute})
	_, c := e.open()
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
