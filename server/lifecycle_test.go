//go:build unix

package server

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// A lifecycle is a Server that Run runs, with one connection.
type lifecycle struct {
	*Server
	client net.Conn
	cancel context.CancelFunc // of the context of Run
	result <-chan error       // of Run
}

// longDrain does not end within a test.
var longDrain = Drain{Spread: time.Hour}

// startWithClient starts a server with a connection.
func startWithClient(t testing.TB, drain Drain) *lifecycle {
	t.Helper()
	s, cancel, result := launch(t, Config{Idle: idle.Config{ReadTimeout: time.Minute}, Drain: drain})
	client := visit(t, s.Addr())
	return &lifecycle{Server: s, cancel: cancel, result: result, client: client}
}

// requireClosed waits until the connection is closed.
func (l *lifecycle) requireClosed(t testing.TB) {
	t.Helper()
	require.NoError(t, l.client.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := l.client.Read(make([]byte, 1))
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
	require.Eventually(t, func() bool { return l.Stats().Draining }, 10*time.Second, time.Millisecond)
	require.NoError(t, pingPong(l.client, 10*time.Second), "a drain serves the connections that are left")
}

func TestShutdownDrains(t *testing.T) {
	before := goleak.IgnoreCurrent()
	l := startWithClient(t, Drain{Spread: 100 * time.Millisecond, Timeout: 2 * time.Second})
	require.NoError(t, l.Shutdown(t.Context()))
	require.ErrorIs(t, await(t, l.result), ErrServerClosed)
	l.requireClosed(t)
	require.EqualValues(t, 1, l.Reaper().Stats().Reaped[reap.Drained])
	require.NoError(t, l.Shutdown(t.Context()), "it is down")
	require.NoError(t, l.Close())
	goleak.VerifyNone(t, before)
}

func TestTheContextOfShutdownEndsTheDrain(t *testing.T) {
	l := startWithClient(t, longDrain)
	ctx, cancel := context.WithCancel(t.Context())
	result := inBackground(func() error { return l.Shutdown(ctx) })
	l.requireDraining(t)
	cancel()
	require.ErrorIs(t, await(t, result), context.Canceled)
	require.ErrorIs(t, await(t, l.result), ErrServerClosed)
	l.requireClosed(t)
}

// TestADrainTellsWhetherItHasClosedAll drains a server with one connection, in time and until its
// context is done.
func TestADrainTellsWhetherItHasClosedAll(t *testing.T) {
	for spread, want := range map[time.Duration]string{
		time.Millisecond: "msg=drained after=",
		time.Hour:        "the remaining connections are closed at once\" connections=1 after=",
	} {
		var log syncbuf.Buffer
		s, _, result := launch(t, Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Idle: idle.Config{ReadTimeout: time.Hour},
			Drain: Drain{Spread: spread, Timeout: spread + time.Second},
		})
		require.NoError(t, pingPong(dial(t, s.Addr()), 10*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		down := inBackground(func() error { return s.Shutdown(ctx) })
		if spread == time.Hour {
			require.Eventually(t, func() bool { return s.Stats().Draining }, 10*time.Second, time.Millisecond)
			cancel()
		}
		_ = await(t, down)
		cancel()
		require.ErrorIs(t, await(t, result), ErrServerClosed)
		require.Contains(t, log.String(), want)
		require.Equal(t, 1, strings.Count(log.String(), "after="), "%s", &log)
	}
}

func TestCloseEndsEverythingAtOnce(t *testing.T) {
	l := startWithClient(t, longDrain)
	require.NoError(t, await(t, inBackground(l.Close)))
	require.ErrorIs(t, await(t, l.result), ErrServerClosed)
	l.requireClosed(t)
	require.NoError(t, l.Close(), "a second time")
}

func TestCloseDuringShutdown(t *testing.T) {
	l := startWithClient(t, longDrain)
	result := inBackground(func() error { return l.Shutdown(context.Background()) })
	l.requireDraining(t)
	require.NoError(t, await(t, inBackground(l.Close)))
	require.NoError(t, await(t, result), "all connections are closed")
	require.ErrorIs(t, await(t, l.result), ErrServerClosed)
	l.requireClosed(t)
}

func TestCloseEndsTheDrainOfRun(t *testing.T) {
	l := startWithClient(t, longDrain)
	l.cancel()
	l.requireDraining(t)
	require.NoError(t, await(t, inBackground(l.Close)))
	require.NoError(t, await(t, l.result), "its context has stopped it")
	l.requireClosed(t)
}

func TestManyCallsOfShutdownAndClose(t *testing.T) {
	l := startWithClient(t, longDrain)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if i%2 == 0 {
				_ = l.Close()
			} else {
				_ = l.Shutdown(context.Background())
			}
		})
	}
	all.Wait()
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
		s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig})
		require.NoError(t, err)
		require.NoError(t, await(t, inBackground(func() error { return end(s) })), name)
		require.NoError(t, await(t, inBackground(func() error { return end(s) })), name)
		require.ErrorIs(t, s.Run(t.Context()), ErrServerClosed, name)
	}
}

func TestCloseWhileTheEngineBoots(t *testing.T) {
	h := &closesAtBoot{}
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: h, Idle: idleConfig})
	require.NoError(t, err)
	h.server = s
	require.ErrorIs(t, await(t, inBackground(func() error { return s.Run(t.Context()) })), ErrServerClosed)
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
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Admin: Admin{Addr: "127.0.0.1:0"}})
	require.NoError(t, err)
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
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: h, Idle: idle.Config{ReadTimeout: time.Minute},
		OnStarted: func(s *Server) {
			client.Go(func() {
				if c, err := net.Dial("tcp", s.Addr().String()); err == nil {
					defer c.Close()
					_, _ = c.Read(make([]byte, 1))
				}
			})
		}})
	require.NoError(t, err)
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
	s, err := New(Config{Addresses: []string{"name.invalid:0"}, Handler: &echo{}, Idle: idleConfig})
	require.NoError(t, err)
	result := inBackground(func() error { return s.Run(t.Context()) })
	await(t, asked)
	require.NoError(t, s.Close())
	require.ErrorIs(t, await(t, result), ErrServerClosed)
}

func TestRunUntilSignalLeavesNoGoroutine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(Config{Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, OnStarted: func(*Server) { cancel() }})
	require.NoError(t, err)
	require.NoError(t, s.RunUntilSignal(ctx))
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "RunUntilSignal.func")
	}, 10*time.Second, 10*time.Millisecond)
}
