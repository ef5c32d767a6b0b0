package wheel

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idlewheel/idlewheel/internal/syncbuf"

	"github.com/stretchr/testify/require"
)

func TestAForgottenTimerIsReportedAndItsGoroutineEnds(t *testing.T) {
	var log syncbuf.Buffer
	func() {
		timer, err := NewTimer(TimerConfig{DetectLeaks: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, timer.Start())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return strings.Contains(log.String(), "without Stop")
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, log.String(), "leak_test.go", "where it was made")
	// After all tests goleak checks that the goroutine has ended.
}

func TestAForgottenTimerRunsPendingTasksFirst(t *testing.T) {
	began, hold := make(chan bool, 1), make(chan bool)
	var runs atomic.Int64
	timeout := func() *Timeout {
		timer, err := NewTimer(TimerConfig{Tick: time.Millisecond, Executor: func(run func()) error { go run(); return nil }})
		require.NoError(t, err)
		timeout, err := timer.ScheduleWithFixedDelay(TaskFunc(func(*Timeout) {
			if runs.Add(1) == 1 {
				began <- true
				<-hold
			}
		}), 0, time.Millisecond)
		require.NoError(t, err)
		return timeout
	}()
	c := timeout.shard.core
	<-began
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.leak.garbage.Load()
	}, 10*time.Second, time.Millisecond)
	close(hold)
	require.Eventually(t, func() bool { return runs.Load() > 5 }, 10*time.Second, time.Millisecond, "the task runs while it is pending")
	require.True(t, timeout.Cancel())
	<-c.done
	require.ErrorIs(t, second(timeout.Timer().NewTimeout(TaskFunc(nothing), 0)), ErrStopped, "the Timer has no goroutine")
}

func TestAForgottenTimerEndsAfterTheRunInWhichItsLastTimeoutIsCancelled(t *testing.T) {
	began, hold := make(chan bool), make(chan bool)
	timeout := func() *Timeout {
		timer, err := NewTimer(TimerConfig{Executor: func(run func()) error { go run(); return nil }})
		require.NoError(t, err)
		timeout, err := timer.ScheduleWithFixedDelay(TaskFunc(func(*Timeout) { began <- true; <-hold }), 0, time.Hour)
		require.NoError(t, err)
		return timeout
	}()
	c := timeout.shard.core
	<-began
	require.True(t, timeout.Cancel())
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.leak.garbage.Load()
	}, 10*time.Second, time.Millisecond)
	close(hold)
	<-c.done
}

func TestAForgottenTimerEndsWhenItsLastTimeoutIsCancelled(t *testing.T) {
	timeout := func() *Timeout {
		timer, err := NewTimer(TimerConfig{})
		require.NoError(t, err)
		return schedule(t, timer, 24*time.Hour, nothing)
	}()
	c := timeout.shard.core
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.leak.garbage.Load()
	}, 10*time.Second, time.Millisecond)
	require.True(t, timeout.Cancel())
	<-c.done // not in 24 hours
}

func TestManyLiveTimersLogOneWarning(t *testing.T) {
	liveWarned.Store(false)
	var log syncbuf.Buffer
	for range 2 * liveLimit {
		newTestTimer(t, TimerConfig{Slots: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	require.Equal(t, 1, strings.Count(log.String(), "share it"))
}

// A keeper has a Timer with a hook that refers to the keeper.
type keeper struct{ timer *Timer }

func (*keeper) panicked(*Timeout, any, []byte) {}

func TestALeakIsReportedAlsoIfAHookRefersToTheTimer(t *testing.T) {
	var log syncbuf.Buffer
	func() {
		o := &keeper{}
		cfg := TimerConfig{DetectLeaks: true, OnPanic: o.panicked, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		var err error
		o.timer, err = NewTimer(cfg)
		require.NoError(t, err)
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return strings.Contains(log.String(), "without Stop")
	}, 10*time.Second, time.Millisecond)
}

func TestAForgottenTimerRefusesNothingWhileSomethingIsPending(t *testing.T) {
	timeout := func() *Timeout {
		timer, err := NewTimer(TimerConfig{})
		require.NoError(t, err)
		return schedule(t, timer, 24*time.Hour, nothing)
	}()
	c := timeout.shard.core
	require.Eventually(t, func() bool { runtime.GC(); return c.leak.garbage.Load() }, 10*time.Second, time.Millisecond)
	var scheduling sync.WaitGroup
	for range 4 {
		scheduling.Go(func() {
			for range 200_000 {
				other, err := timeout.Timer().NewTimeout(TaskFunc(nothing), time.Hour)
				if err != nil {
					t.Errorf("it is not stopped: %v", err)
					return
				}
				other.Cancel()
			}
		})
	}
	scheduling.Wait()
	require.Equal(t, 1, timeout.Timer().Pending())
	timeout.Cancel()
	<-c.done
}

func TestAStoppedTimerIsNotLive(t *testing.T) {
	live := liveTimers.Load()
	timer, err := NewTimer(TimerConfig{Slots: 1})
	require.NoError(t, err)
	require.Equal(t, live+1, liveTimers.Load())
	_, err = timer.Stop()
	require.NoError(t, err)
	require.Equal(t, live, liveTimers.Load())
}

func TestTimersWithoutALoggerDoNotUseUpTheWarning(t *testing.T) {
	liveWarned.Store(false)
	for range 2 * liveLimit {
		newTestTimer(t, TimerConfig{Slots: 1})
	}
	var log syncbuf.Buffer
	newTestTimer(t, TimerConfig{Slots: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.Equal(t, 1, strings.Count(log.String(), "share it"))
}
