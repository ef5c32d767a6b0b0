package timer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestATaskRunsOnceWithinATick(t *testing.T) {
	const tick = 10 * time.Millisecond
	for _, d := range []time.Duration{
		-time.Hour, 0, 1, tick - 1, tick, tick + 1, 64 * tick, 64*tick + 1, time.Second, time.Hour, 400 * 24 * time.Hour,
	} {
		inBubble(t, Config{}, func(t *testing.T, timer *Timer) {
			time.Sleep(3 * time.Millisecond) // between two ticks
			runs := newDiary()
			timeout := add(t, timer, d, runs.write)
			require.True(t, timeout.Pending())
			time.Sleep(max(d, 0) + tick)
			synctest.Wait()
			require.Len(t, runs.read(), 1, "%v", d)
			require.GreaterOrEqual(t, runs.read()[0], max(d, 0))
			require.False(t, timeout.Pending())
			time.Sleep(time.Hour)
			require.Len(t, runs.read(), 1)
		})
	}
}

func TestAnEarlierDeadlineWakesTheTimer(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, timer *Timer) {
		runs := newDiary()
		add(t, timer, time.Hour, runs.write)
		moved := add(t, timer, 2*time.Hour, runs.write)
		synctest.Wait()
		add(t, timer, time.Minute, runs.write)
		synctest.Wait()
		require.True(t, moved.Reset(time.Second))
		time.Sleep(2 * time.Hour)
		require.Equal(t, []time.Duration{time.Second, time.Minute, time.Hour}, runs.read())
	})
}

func TestALongDelayIsNotAnOverflow(t *testing.T) {
	inBubble(t, Config{Tick: 1}, func(t *testing.T, timer *Timer) {
		timeout := add(t, timer, 1<<63-1, nothing)
		time.Sleep(80 * 365 * 24 * time.Hour)
		require.True(t, timeout.Pending())
		left, err := timer.Shutdown(t.Context())
		require.NoError(t, err)
		require.Equal(t, []*Timeout{timeout}, left)
	})
}

func TestAnErrorNamesAFaultOnce(t *testing.T) {
	_, err := New(Config{Tick: -time.Second})
	require.EqualError(t, err, "timer: Tick is -1s, must not be negative")
	_, err = New(Config{Tick: -1, MaxPending: -1, SlowAfter: -1, SkipAfter: -1})
	require.Len(t, strings.Split(err.Error(), "\n"), 4)
	timer := newTestTimer(t, Config{MaxPending: 1})
	_, err = timer.AfterFunc(0, nil)
	require.EqualError(t, err, "timer: the task is nil")
	_, err = timer.Every(time.Millisecond, nothing)
	require.EqualError(t, err, "timer: the period is 1ms, must be at least the tick of 10ms")
	_, err = timer.Every(0, nothing)
	require.EqualError(t, err, "timer: the period is 0s, must be at least the tick of 10ms")
	_, err = timer.EveryAfter(0, nothing)
	require.EqualError(t, err, "timer: the period is 0s, must be at least the tick of 10ms")
	_, err = timer.EveryAfter(-1, nothing)
	require.EqualError(t, err, "timer: the period is -1ns, must be at least the tick of 10ms")
	add(t, timer, time.Hour, nothing)
	_, err = timer.AfterFunc(0, nothing)
	require.ErrorIs(t, err, ErrTooManyPending)
	require.EqualError(t, err, "timer: too many pending timeouts: 1")
	require.Equal(t, Stats{Pending: 1, Scheduled: 1}, timer.Stats(), "an error changes no counter")
}

func TestShutdownWaitsForRunningTasks(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Executor: executor}, func(t *testing.T, timer *Timer) {
				var ended atomic.Bool
				handle := make(chan *Timeout, 1)
				retry := add(t, timer, time.Second, func() {
					(<-handle).Reset(0)
					time.Sleep(time.Minute)
					ended.Store(true)
				})
				handle <- retry
				time.Sleep(2 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				left, err := timer.Shutdown(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.EqualError(t, err, "timer: tasks are still running: context deadline exceeded")
				require.Equal(t, []*Timeout{retry}, left, "its second run")
				left, err = timer.Shutdown(t.Context())
				require.NoError(t, err)
				require.Empty(t, left)
				require.True(t, ended.Load())
			})
		})
	}
}

// A program may close its pool as soon as Shutdown has returned.
func TestShutdownWaitsForTheExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var returned atomic.Bool
		timer := newTestTimer(t, Config{Executor: func(func()) error {
			time.Sleep(time.Second)
			returned.Store(true)
			return errors.New("full")
		}})
		timeout := add(t, timer, time.Second, nothing)
		time.Sleep(1500 * time.Millisecond)
		left, err := timer.Shutdown(t.Context())
		require.NoError(t, err)
		require.Equal(t, []*Timeout{timeout}, left)
		require.True(t, returned.Load())
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nothing() {}

// newTestTimer returns a Timer that logs nothing, unless cfg has a Logger, and that ends with the
// test.
func newTestTimer(t testing.TB, cfg Config) *Timer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	timer, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		// A task that has told the test all it waits for may not have returned yet.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_, err := timer.Shutdown(ctx)
		require.NoError(t, err)
	})
	return timer
}

// inBubble runs a test with a Timer in virtual time.
func inBubble(t *testing.T, cfg Config, test func(t *testing.T, timer *Timer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newTestTimer(t, cfg)) })
}

// spawn is an executor with a goroutine for each task.
func spawn(run func()) error { go run(); return nil }

// add calls AfterFunc.
func add(t testing.TB, timer *Timer, d time.Duration, task func()) *Timeout {
	t.Helper()
	timeout, err := timer.AfterFunc(d, task)
	require.NoError(t, err)
	return timeout
}

// A diary records the times of events.
type diary struct {
	began time.Time
	mu    sync.Mutex
	times []time.Duration
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times = append(d.times, time.Since(d.began))
}

func (d *diary) read() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.times
}

// Stats holds the locks of all shards, so that no Timeout is counted twice that moves to another.
func TestStatsAreOfOneInstant(t *testing.T) {
	timer := newTestTimer(t, Config{})
	first, last := timer.core.shards[0], timer.core.shards[len(timer.core.shards)-1]
	last.mu.Lock()
	var reading sync.WaitGroup
	reading.Go(func() { timer.Stats() })
	require.Eventually(t, func() bool {
		if first.mu.TryLock() {
			first.mu.Unlock()
			return false
		}
		return true
	}, 10*time.Second, time.Millisecond, "the first shard is not locked while Stats waits for the last one")
	last.mu.Unlock()
	reading.Wait()
}
