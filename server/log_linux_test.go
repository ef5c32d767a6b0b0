package server

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

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
	s, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Logger: slog.New(log),
		Drain: Drain{Spread: 10 * time.Millisecond, Timeout: time.Second},
	})
	for range 10 {
		require.NoError(t, pingPong(dial(t, s.Addr()), 10*time.Second))
	}
	require.Eventually(t, func() bool { return s.Reaper().Stats().Reaped[reap.ReadIdle] == 10 }, 10*time.Second, time.Millisecond)
	for range 2000 {
		s.cfg.Logger.Info("more than fit")
	}
	require.NotZero(t, s.Stats().DroppedLogs)
	require.NotZero(t, values(t, s)["log_records_dropped_total"])
	began := time.Now()
	stop()
	require.Less(t, time.Since(began), 10*time.Second)
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
	s, stop := startIn(t, Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: cfg, Logger: slog.New(slow),
		Drain: Drain{Spread: time.Millisecond, Timeout: time.Second},
	})
	c := dial(t, s.Addr())
	require.NoError(t, pingPong(c, 10*time.Second))
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
	s, err := New(Config{
		Addresses: []string{"127.0.0.1:0"}, Handler: &echo{}, Idle: idleConfig, Logger: slog.New(slog.NewTextHandler(&out, nil)),
	})
	require.NoError(t, err)
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
