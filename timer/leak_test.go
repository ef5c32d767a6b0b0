package timer

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"

	"github.com/stretchr/testify/require"
)

func TestAForgottenTimerIsReportedAndItsGoroutineEnds(t *testing.T) {
	var log syncbuf.Buffer
	ran := make(chan bool)
	func() {
		timer, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Tick: time.Millisecond, Executor: spawn})
		require.NoError(t, err)
		add(t, timer, 0, runtime.Goexit)
		add(t, timer, 50*time.Millisecond, func() { ran <- true })
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return strings.Contains(log.String(), "without Shutdown")
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, log.String(), "leak_test.go", "where it was made")
	<-ran // what is pending still runs
	// After all tests goleak checks that the goroutine has ended.
}

func TestATimerThatWasShutDownIsNotReported(t *testing.T) {
	var log syncbuf.Buffer
	live := liveTimers.Load()
	func() {
		timer, err := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.Equal(t, live+1, liveTimers.Load())
		_, err = timer.Shutdown(t.Context())
		require.NoError(t, err)
	}()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	require.Empty(t, log.String())
	require.Equal(t, live, liveTimers.Load())
}

func TestManyLiveTimersLogOneWarning(t *testing.T) {
	liveWarned.Store(false)
	var log syncbuf.Buffer
	for range 2 * liveLimit {
		newTestTimer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	require.Equal(t, 1, strings.Count(log.String(), "share it"))
}
