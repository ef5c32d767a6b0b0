//go:build unix

package server

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// A lifecycle is a Server that Run runs, with one connection.
type lifecycle struct {
	*Server
	client net.Conn
	cancel context.CancelFunc // of the context of Run
	result <-chan error       // of Run
	log    syncbuf.Buffer
}

// startWithClient starts a server with a connection.
func startWithClient(t testing.TB, drain Drain) *lifecycle {
	t.Helper()
	l := &lifecycle{}
	l.Server, l.cancel, l.result = launch(t, Config{Idle: idle.Config{ReadTimeout: time.Minute}, Drain: drain, Logger: logTo(&l.log)})
	l.client = visit(t, l.Addr())
	return l
}

// requireClosed waits until a connection is closed.
func requireClosed(t testing.TB, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "it is still open")
}

// inBackground calls a function and returns a channel for its result.
func inBackground(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

func (l *lifecycle) requireDraining(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return l.Stats().Draining }, time.Minute, time.Millisecond)
	require.NoError(t, pingPong(l.client, 10*time.Second), "a drain serves the connections that are left")
}

// TestShutdownDrains drains in time, and until the context of Shutdown is done.
func TestShutdownDrains(t *testing.T) {
	for spread, want := range map[time.Duration]struct {
		err     error
		drained int
		log     string
	}{
		100 * time.Millisecond: {nil, 1, "msg=drained after="},
		time.Hour:              {context.Canceled, 0, `the remaining connections are closed at once" connections=1 after=`},
	} {
		before := goleak.IgnoreCurrent()
		l := startWithClient(t, Drain{Spread: spread, Timeout: spread + 2*time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := inBackground(func() error { return l.Shutdown(ctx) })
		if want.err != nil {
			l.requireDraining(t)
			cancel()
		}
		require.ErrorIs(t, await(t, result), want.err)
		require.ErrorIs(t, await(t, l.result), ErrServerClosed)
		requireClosed(t, l.client)
		require.EqualValues(t, want.drained, l.Reaper().Stats().Reaped[reap.Drained])
		require.Contains(t, l.log.String(), want.log)
		require.Equal(t, 1, strings.Count(l.log.String(), "after="), "%s", &l.log)
		require.NoError(t, l.Shutdown(t.Context()), "it is down")
		require.NoError(t, l.Close())
		goleak.VerifyNone(t, before)
	}
}

// TestCloseEndsEverythingAtOnce also calls Close during a drain that does not end within the test.
func TestCloseEndsEverythingAtOnce(t *testing.T) {
	for _, tc := range []struct {
		drains bool
		begin  func(l *lifecycle) error
		ofRun  error
	}{
		{false, func(*lifecycle) error { return nil }, ErrServerClosed},
		{true, func(l *lifecycle) error { return l.Shutdown(context.Background()) }, ErrServerClosed},
		{true, func(l *lifecycle) error { l.cancel(); return nil }, nil},
	} {
		l := startWithClient(t, Drain{Spread: time.Hour})
		begun := inBackground(func() error { return tc.begin(l) })
		if tc.drains {
			l.requireDraining(t)
		}
		require.NoError(t, await(t, inBackground(l.Close)))
		require.Nil(t, l.acceptors.Load(), "no event loop runs")
		require.NoError(t, await(t, begun), "all connections are closed")
		require.ErrorIs(t, await(t, l.result), tc.ofRun)
		requireClosed(t, l.client)
		require.NoError(t, l.Close(), "a second time")
	}
}

// TestManyCallsOfShutdownAndClose also ends the context of Shutdown when the server is down.
func TestManyCallsOfShutdownAndClose(t *testing.T) {
	l := startWithClient(t, Drain{Spread: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	results := make(chan error, 16)
	for range 8 {
		go func() { results <- l.Close() }()
		go func() { results <- l.Shutdown(ctx) }()
	}
	<-l.down
	cancel()
	for range 16 {
		require.NoError(t, await(t, results))
	}
	require.ErrorIs(t, await(t, l.result), ErrServerClosed)
}

func TestRunTwice(t *testing.T) {
	l := startWithClient(t, Drain{})
	err := l.Run(t.Context())
	require.EqualError(t, err, "server: Run was called twice")
	require.NoError(t, pingPong(l.client, 10*time.Second), "the first call goes on")
	l.cancel()
	require.NoError(t, await(t, l.result))
	require.ErrorIs(t, l.Run(t.Context()), ErrServerClosed, "a Server runs once")
}

func TestAServerThatWasClosedBeforeRun(t *testing.T) {
	for name, end := range map[string]func(*Server) error{
		"Shutdown": func(s *Server) error { return s.Shutdown(t.Context()) },
		"Close":    (*Server).Close,
	} {
		ln := sockets.Listen(t, "tcp", "127.0.0.1:0")
		s := newServer(t, Config{Listeners: []net.Listener{ln}, OnStarted: func(*Server) { t.Error("started: ", name) }})
		require.NoError(t, await(t, inBackground(func() error { return end(s) })), name)
		require.NoError(t, await(t, inBackground(func() error { return end(s) })), name)
		require.ErrorIs(t, s.Run(t.Context()), ErrServerClosed, name)
		require.ErrorIs(t, ln.Close(), net.ErrClosed, name)
	}
}

func TestCloseWhileTheEngineBoots(t *testing.T) {
	h := &closesAtBoot{}
	h.server = newServer(t, Config{Handler: h})
	require.ErrorIs(t, await(t, inBackground(func() error { return h.server.Run(t.Context()) })), ErrServerClosed)
}

type closesAtBoot struct {
	echo
	server *Server
}

func (h *closesAtBoot) OnBoot(gnet.Engine) gnet.Action {
	go h.server.Close()
	select {
	case <-h.server.serving.Done():
	case <-time.After(10 * time.Second): // the test fails
	}
	return gnet.None
}

func TestANewServerTellsWhatItKnows(t *testing.T) {
	s := newServer(t, Config{Admin: Admin{Addr: "127.0.0.1:0"}})
	require.Equal(t, idleConfig.ReadTimeout, s.Reaper().Config().ReadTimeout)
	require.Nil(t, s.Addr())
	require.Empty(t, s.Addrs())
	require.Nil(t, s.AdminAddr())
	limit, why := s.Limit()
	require.Zero(t, limit)
	require.Empty(t, why)
	require.Equal(t, Stats{}, s.Stats())
}

func TestTheHandlerHasTheReaperBeforeTheFirstConnection(t *testing.T) {
	h := &usesReaper{}
	var client sync.WaitGroup
	defer client.Wait() // a later test replaces net.DefaultResolver
	s := newServer(t, Config{Handler: h, Idle: idle.Config{ReadTimeout: time.Minute}, OnStarted: func(s *Server) {
		client.Go(func() {
			if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
			}
		})
	}})
	h.reaper = s.Reaper()
	require.NoError(t, await(t, inBackground(func() error { return s.Run(t.Context()) })))
	require.Equal(t, 1, h.connections)
}

// usesReaper counts the connections when the first one is opened, and stops.
type usesReaper struct {
	echo
	reaper      *idle.Reaper
	connections int
}

func (h *usesReaper) OnOpen(gnet.Conn) ([]byte, gnet.Action) {
	h.connections = h.reaper.Connections()
	return nil, gnet.Shutdown
}

// TestCloseDuringALookUp has a resolver that never answers.
func TestCloseDuringALookUp(t *testing.T) {
	was, asked := net.DefaultResolver, make(chan struct{}, 1)
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	s := newServer(t, Config{Addresses: []string{"name.invalid:0"}})
	result := inBackground(func() error { return s.Run(t.Context()) })
	await(t, asked)
	require.NoError(t, s.Close())
	require.ErrorIs(t, await(t, result), ErrServerClosed)
}

func TestRunUntilSignalLeavesNoGoroutine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newServer(t, Config{OnStarted: func(*Server) { cancel() }})
	require.NoError(t, s.RunUntilSignal(ctx))
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "RunUntilSignal.func")
	}, time.Minute, 10*time.Millisecond)
}

// TestTheStartLogsEachSettingOnce starts a server with a limit of connections from the number of
// descriptors. Three connections are reaped, and a setting is changed.
func TestTheStartLogsEachSettingOnce(t *testing.T) {
	t.Parallel()
	var log, ofReaper syncbuf.Buffer
	s, stop := startIn(t, Config{Drain: Drain{Delay: time.Millisecond}, Logger: logTo(&log), Idle: idle.Config{Logger: logTo(&ofReaper)}})
	limit, _ := s.Limit()
	require.Equal(t, limit, s.Reaper().Config().MaxConnections, "the start has set it")
	for range 3 {
		dial(t, s.Addr())
	}
	require.Eventually(t, func() bool { return s.Reaper().Stats().Reaped.Total() == 3 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.ReadTimeout = 2 * time.Hour }))
	stop()
	for _, once := range []string{
		"msg=serving", " config.addr=", " config.drain-delay=1ms", " idle.read-timeout=300ms", " idle.tick=", " limit=", " because=",
		"msg=reaped number=3 reasons.read_idle=3 connections=0 late=",
	} {
		require.Equal(t, 1, strings.Count(log.String(), once), "%s in %s", once, &log)
	}
	require.NotContains(t, log.String(), "from=gnet", "what gnet logs at its start is of level debug")
	require.NotContains(t, log.String(), "level=DEBUG")
	require.Equal(t, 1, strings.Count(ofReaper.String(), "idle.max-connections="), "%s", &ofReaper)
	require.Contains(t, ofReaper.String(), "msg=\"configuration changed\" idle.read-timeout=2h0m0s\n")
}

// TestAnUpdateRaisesMaxConnections has a client that waits for room, as after a SIGHUP in a flood.
func TestAnUpdateRaisesMaxConnections(t *testing.T) {
	t.Parallel()
	s, _ := startIn(t, Config{Idle: idle.Config{ReadTimeout: time.Hour, MaxConnections: 2, ShedProtect: time.Hour}})
	for range 3 {
		dial(t, s.Addr())
	}
	require.Eventually(t, func() bool { return s.Stats().Paused && s.Reaper().Connections() == 2 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.MaxConnections = 4 }))
	require.Eventually(t, func() bool { return s.Reaper().Connections() == 3 }, time.Minute, time.Millisecond)
	limit, why := s.Limit()
	require.Equal(t, 4, limit)
	require.Equal(t, "as configured", why)
	require.InDelta(t, 0.75, s.Stats().Pressure.Connections, 0.01)
	require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.MaxConnections = 2 }))
	require.InDelta(t, 1, s.Stats().Pressure.Connections, 0.01)
	require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.MaxConnections = 0 }))
	limit, why = s.Limit()
	require.Greater(t, limit, 4)
	require.Contains(t, why, "descriptors allowed")
}

func TestAnUpdateBeforeRunStays(t *testing.T) {
	for change, want := range map[int]int{20: 20, 200: 200, 1 << 30: 0} {
		var now, limit int
		s := newServer(t, Config{Idle: idle.Config{ReadTimeout: time.Hour, MaxConnections: 100}, OnStarted: func(s *Server) {
			now = s.Stats().MaxConnections
			limit, _ = s.Limit()
			s.stop(nil)
		}})
		require.NoError(t, s.Update(func(cfg *idle.Config) { cfg.MaxConnections = change }))
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, cmp.Or(want, s.setup.Load().budget.most()), now)
		require.Equal(t, now, limit)
	}
}

// TestTheStartWarnsOnce has a heartbeat that never sends a ping, and a limit of connections from
// the number of descriptors.
func TestTheStartWarnsOnce(t *testing.T) {
	var log syncbuf.Buffer
	late := idle.Heartbeat{Interval: 30 * time.Second, Ping: func(gnet.Conn) []byte { return []byte("ping") }}
	_, stop := startIn(t, Config{Logger: logTo(&log), Idle: idle.Config{ReadTimeout: 20 * time.Second, Heartbeat: late}})
	stop()
	require.NotContains(t, log.String(), "msg=drain")
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "%s", &log)
	require.Contains(t, log.String(), "read-timeout=20s heartbeat=30s", "it names both")
}
