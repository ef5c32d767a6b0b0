package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/sourcelimit"
)

// A bareConn is a connection that the Reaper does not watch.
type bareConn struct {
	gnet.Conn
	context any
}

var peer = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7}

func (*bareConn) LocalAddr() net.Addr       { return &net.UDPAddr{} }
func (*bareConn) RemoteAddr() net.Addr      { return peer }
func (*bareConn) EventLoop() gnet.EventLoop { return nil }
func (*bareConn) Fd() int                   { return 7 }
func (c *bareConn) Context() any            { return c.context }
func (c *bareConn) SetContext(v any)        { c.context = v }
func (*bareConn) SetSafeContext(any)        {}

// A quitter asks gnet to shut down in each event.
type quitter struct{ gnet.BuiltinEventEngine }

func (quitter) OnBoot(gnet.Engine) gnet.Action           { return gnet.Shutdown }
func (quitter) OnShutdown(gnet.Engine)                   { panic("forwarded") }
func (quitter) OnOpen(gnet.Conn) ([]byte, gnet.Action)   { return []byte("x"), gnet.Shutdown }
func (quitter) OnTraffic(gnet.Conn) gnet.Action          { return gnet.Shutdown }
func (quitter) OnClose(gnet.Conn, error) gnet.Action     { return gnet.Shutdown }
func (quitter) OnTick() (d time.Duration, _ gnet.Action) { return time.Second, gnet.Shutdown }

// newTestAcceptors returns acceptors of a full server with one source of one connection.
func newTestAcceptors(t *testing.T, h gnet.EventHandler) *acceptors {
	cfg := Config{Handler: h, Sources: sourcelimit.Limits{Connections: 1}}
	r := newTestRoom(t, 1, 0)
	return &acceptors{
		setup: &setup{}, admission: newAdmission(&cfg), room: r, pauses: &pauses{}, log: slog.New(slog.DiscardHandler), accepting: t.Context(),
	}
}

// requireEmpty checks that one connection has room, and a second one has not.
func (a *acceptors) requireEmpty(t *testing.T) {
	t.Helper()
	require.Zero(t, a.room.taken.Load())
	require.True(t, a.room.places.TryAcquire(1))
	require.False(t, a.room.places.TryAcquire(1))
	a.room.places.Release(1)
	require.True(t, a.admission.admit(peer.AddrPort().Addr()))
	require.False(t, a.admission.admit(peer.AddrPort().Addr()))
	a.admission.sources.Release(peer.AddrPort().Addr())
}

func TestShutdownOfEachEventStopsTheServer(t *testing.T) {
	for name, event := range map[string]func(h *engineHandler) gnet.Action{
		"OnOpen":    func(h *engineHandler) gnet.Action { _, action := h.OnOpen(&bareConn{}); return action },
		"OnTraffic": func(h *engineHandler) gnet.Action { return h.OnTraffic(&bareConn{}) },
		"OnTick":    func(h *engineHandler) gnet.Action { _, action := h.OnTick(); return action },
		"OnClose": func(h *engineHandler) gnet.Action {
			c := &bareConn{}
			_, _ = h.OnOpen(c)
			return h.OnClose(c, nil)
		},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		h := &engineHandler{Reaper: newTestReaper(t, quitter{}, 0), stop: stop}
		require.Equal(t, gnet.None, h.OnBoot(gnet.Engine{}), "the handler boots once")
		h.OnShutdown(gnet.Engine{})
		require.NoError(t, ctx.Err())
		require.Equal(t, gnet.None, event(h), "gnet would stop one event loop: %s", name)
		require.Equal(t, errShutdown, context.Cause(ctx), name)
	}
}

// TestAPlaceIsGivenBackOnce closes connections that came through an acceptor, and others that the
// handler has registered. They have the same address.
func TestAPlaceIsGivenBackOnce(t *testing.T) {
	a := newTestAcceptors(t, &echo{})
	h := &engineHandler{Reaper: newTestReaper(t, &echo{}, 0), acceptors: a}
	c := &bareConn{}
	for range 3 {
		for _, registered := range []bool{false, true} {
			c.context = nil
			if e := new(entry); !registered {
				require.True(t, a.admission.admit(peer.AddrPort().Addr()))
				require.True(t, a.enter())
				c.context = e
			}
			_, _ = h.OnOpen(c)
			require.Nil(t, c.context)
			_ = h.OnClose(c, nil)
			a.requireEmpty(t)
		}
	}
}

// TestAConnectionThatIsNotOpenedGivesItsPlaceBack opens connections that are closed already, that
// come while the server stops, and above the rate.
func TestAConnectionThatIsNotOpenedGivesItsPlaceBack(t *testing.T) {
	loop, err := gnet.NewClient(&echo{})
	require.NoError(t, err)
	ln := listenTCP(t)
	dial(t, ln.Addr())
	conn, err := ln.Accept()
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	from := conn.RemoteAddr().(*net.TCPAddr)
	from.IP, from.Port = peer.IP, peer.Port
	a := newTestAcceptors(t, &echo{})
	a.open(conn, loop)
	a.requireEmpty(t)

	require.True(t, a.room.places.TryAcquire(1))
	stopped, stop := context.WithCancel(t.Context())
	stop()
	a.accepting = stopped
	a.open(conn, loop)
	a.room.places.Release(1)
	require.Zero(t, a.pauses.waiting.Load())
	a.requireEmpty(t)

	a.admission.rate.SetLimit(0)
	a.admission.rate.SetBurst(0)
	a.open(conn, loop)
	require.EqualValues(t, 1, a.admission.byRate.Load())
	require.NoError(t, a.admission.sources.Admit(netip.MustParseAddr("10.0.0.1")))
}

// A ticker counts its ticks.
type ticker struct {
	echo
	ticks atomic.Int64
}

func (h *ticker) OnTick() (time.Duration, gnet.Action) { h.ticks.Add(1); return time.Hour, gnet.None }

func TestOneLoopTicks(t *testing.T) {
	h := &ticker{}
	_, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: h, NumEventLoop: 3, Idle: idleConfig, Options: []gnet.Option{gnet.WithTicker(true)},
	})
	require.Eventually(t, func() bool { return h.ticks.Load() > 0 }, 10*time.Second, time.Millisecond)
	stop()
	require.EqualValues(t, 1, h.ticks.Load())
}
