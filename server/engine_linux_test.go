package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
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

// TestGnetTellsDetailsAtTheLevelOfDetails has each level of gnet's logger. Fatalf ends no process.
func TestGnetTellsDetailsAtTheLevelOfDetails(t *testing.T) {
	var out syncbuf.Buffer
	l := &engineLog{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for level, log := range map[string]func(string, ...any){
		"DEBUG msg=a1 ": l.Debugf, "DEBUG msg=b1 ": l.Infof, "WARN msg=c1 ": l.Warnf, "ERROR msg=d1 ": l.Errorf, "ERROR msg=e1 ": l.Fatalf,
	} {
		name := level[strings.Index(level, "=")+1:][:1]
		log(name+"%d", 1)
		require.Contains(t, out.String(), "level="+level+"from=gnet")
	}
	require.Equal(t, 5, strings.Count(out.String(), "\n"))
	for n := range 2 * keptErrors {
		l.Errorf("%d", n/2)
	}
	for range 2 {
		require.Equal(t, "0; 1; 2; 3; 4; 5; 6; 7", l.lastErrors(), "the last ones, each once")
	}
}

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
	from, limited := peer.AddrPort().Addr(), newAdmission(&Config{AcceptRate: 1, Sources: SourceLimits{Connections: 2}})
	require.True(t, limited.admit(from))
	require.True(t, limited.admit(from.Next()))
	require.False(t, limited.admit(from), "twice the rate at once")
	require.NoError(t, limited.sources.Admit(from))
	require.Error(t, limited.sources.Admit(from))
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
	from, to, zone := conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr), "eth0"
	from.IP, from.Port, from.Zone, to.Zone = peer.IP, peer.Port, zone, zone
	a, log := newTestAcceptors(t, &echo{}), &strings.Builder{}
	a.log = logTo(log)
	a.open(conn, loop)
	a.requireEmpty(t)
	require.Contains(t, log.String(), "opening a connection: ")
	for _, own := range []string{from.Zone, to.Zone} { // gnet puts the bytes into a pool
		require.Equal(t, zone, own)
		require.NotSame(t, unsafe.StringData(zone), unsafe.StringData(own))
	}

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
	_, stop := startIn(t, Config{Handler: h, NumEventLoop: 3, Options: []gnet.Option{gnet.WithTicker(true)}})
	require.Eventually(t, func() bool { return h.ticks.Load() > 0 }, time.Minute, time.Millisecond)
	stop()
	require.EqualValues(t, 1, h.ticks.Load())
}

// starves takes all descriptors when the engine boots, so that no loop can start.
type starves struct {
	echo
	before syscall.Rlimit
}

func (h *starves) OnBoot(gnet.Engine) gnet.Action {
	next, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	_ = syscall.Close(next)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next), Max: h.before.Max}); err != nil {
		panic(err)
	}
	return gnet.None
}

func TestEngineThatCannotStartAfterBooting(t *testing.T) {
	h := &starves{}
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &h.before))
	err := await(t, inBackground(func() error { return run(t.Context(), Config{Handler: h, NumEventLoop: 2}) }))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &h.before))
	require.ErrorIs(t, err, syscall.EMFILE, "Run returns the error, and does not wait for an engine that never ran")
}

// A stalledLog is a slog.Handler that blocks until read is closed.
type stalledLog struct {
	slog.Handler
	read chan struct{}
}

func (s *stalledLog) Handle(ctx context.Context, r slog.Record) error {
	<-s.read
	return s.Handler.Handle(ctx, r)
}

// TestALoggerThatBlocksBlocksNoServer opens, reaps and closes connections while the Logger blocks,
// and stops the server.
func TestALoggerThatBlocksBlocksNoServer(t *testing.T) {
	var out syncbuf.Buffer
	log := &stalledLog{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}), make(chan struct{})}
	s, stop := startIn(t, Config{Logger: slog.New(log), Drain: Drain{Spread: 10 * time.Millisecond, Timeout: time.Second}})
	for range 10 {
		require.NoError(t, pingPong(dial(t, s.Addr()), 10*time.Second))
	}
	require.Eventually(t, func() bool { return s.Reaper().Stats().Reaped[reap.ReadIdle] == 10 }, time.Minute, time.Millisecond)
	for range 2000 {
		s.cfg.Logger.Info("more than fit")
	}
	require.NotZero(t, s.Stats().DroppedLogs)
	require.NotZero(t, values(t, s)["log_records_dropped_total"])
	stop()
	close(log.read)
	s.flushLogs()
	require.Equal(t, 10, strings.Count(out.String(), `msg="reaping connection"`), "the first records are kept")
	require.Contains(t, out.String(), `msg="log records were dropped`)
}

// TestNoRecordIsLostAtTheEnd has a Logger that is slow, and two loggers with a queue of their own.
func TestNoRecordIsLostAtTheEnd(t *testing.T) {
	var out, reaps syncbuf.Buffer
	slow := slog.NewTextHandler(slowWriter{&out}, nil)
	cfg := idleConfig
	cfg.Logger = slog.New(slog.NewTextHandler(slowWriter{&reaps}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, stop := startIn(t, Config{Idle: cfg, Logger: slog.New(slow), Drain: Drain{Spread: time.Millisecond, Timeout: time.Second}})
	visit(t, s.Addr())
	require.Len(t, s.logQueues(), 2)
	stop()
	require.Contains(t, out.String(), "msg=drained")
	require.Contains(t, out.String(), "msg=reaped number=1")
	require.Contains(t, reaps.String(), `msg="reaping connection"`)
	require.Zero(t, s.Stats().DroppedLogs)
}

type slowWriter struct{ *syncbuf.Buffer }

func (w slowWriter) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return w.Buffer.Write(p)
}

func TestReloadsAreLoggedAndCounted(t *testing.T) {
	var out syncbuf.Buffer
	s := newServer(t, Config{Logger: logTo(&out)})
	s.Reloaded(nil)
	s.Reloaded(nil)
	s.Reloaded(s.Reaper().Update(func(cfg *idle.Config) { cfg.ReadTimeout = -1 }))
	s.flushLogs()
	require.Equal(t, 2, strings.Count(out.String(), `level=INFO msg="the limits were reloaded"`))
	require.Equal(t, 1, strings.Count(out.String(), `level=ERROR msg="the limits were not reloaded" error="read-timeout is -1ns: set`), out.String())
	require.EqualValues(t, 2, s.Stats().Reloads)
	require.EqualValues(t, 1, s.Stats().FailedReloads)
	require.Subset(t, values(t, s), map[string]float64{"reloads_total applied": 2, "reloads_total failed": 1})
}
