package timer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/idlewheel/idlewheel/internal/syncbuf"

	"github.com/stretchr/testify/require"
)

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

func TestATaskRunsOnceWithinATick(t *testing.T) {
	const tick = 10 * time.Millisecond
	for _, d := range []time.Duration{
		-time.Hour, 0, 1, tick - 1, tick, tick + 1, 64 * tick, 64*tick + 1, time.Second, time.Hour, 400 * 24 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := newTestTimer(t, Config{})
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
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
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
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{Tick: 1})
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

func TestStopAndResetReportLikeTimeTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
		runs := newDiary()
		timeout := add(t, timer, time.Second, runs.write)
		require.True(t, timeout.Reset(2*time.Second))
		require.True(t, timeout.Stop())
		require.False(t, timeout.Stop())
		require.False(t, timeout.Reset(3*time.Second), "it was stopped")
		time.Sleep(4 * time.Second)
		require.False(t, timeout.Stop(), "it has run")
		require.False(t, timeout.Reset(time.Second), "it has run")
		time.Sleep(2 * time.Second)
		require.Equal(t, []time.Duration{3 * time.Second, 5 * time.Second}, runs.read())
	})
}

// A task resets its own Timeout, as a retry does.
func TestResetWithinTheTask(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, Config{Executor: executor})
				runs := newDiary()
				handle := make(chan *Timeout, 1)
				handle <- add(t, timer, time.Second, func() {
					runs.write()
					timeout := <-handle
					handle <- timeout
					if len(runs.read()) < 3 && timeout.Reset(time.Second) {
						t.Error("Reset is true for a running one")
					}
					if timeout.Stop() {
						t.Error("Stop is true for a running one")
					}
					if len(runs.read()) < 3 {
						timeout.Reset(time.Second)
					}
					time.Sleep(1500 * time.Millisecond) // ends after the deadline: the next run waits
				})
				time.Sleep(10 * time.Second)
				require.Equal(t, []time.Duration{time.Second, 2500 * time.Millisecond, 4 * time.Second}, runs.read())
				require.Zero(t, timer.Pending())
			})
		})
	}
}

func TestFixedRateDoesNotDriftAndFixedDelayDoes(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{Executor: spawn})
		rate, delay := newDiary(), newDiary()
		every, err := timer.Every(25*ms, rate.write)
		require.NoError(t, err)
		after, err := timer.EveryAfter(25*ms, func() { delay.write(); time.Sleep(10 * ms) })
		require.NoError(t, err)
		time.Sleep(121 * ms)
		require.True(t, every.Stop())
		after.Stop()
		require.Equal(t, []time.Duration{30 * ms, 50 * ms, 80 * ms, 100 * ms}, rate.read(), "the grid of 25 ms, rounded up to ticks")
		require.Equal(t, []time.Duration{30 * ms, 70 * ms, 110 * ms}, delay.read(), "25 ms from the end of the one before")
		time.Sleep(time.Second)
		require.Len(t, rate.read(), 4)
		require.Len(t, delay.read(), 3)

		again := newDiary()
		every, err = timer.Every(time.Hour, again.write)
		require.NoError(t, err)
		require.True(t, every.Reset(0), "the first run is at once")
		time.Sleep(2*time.Hour + time.Second)
		require.Len(t, again.read(), 3)
	})
}

func TestRunsOfOneTimeoutDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{Executor: spawn})
		runs := newDiary()
		var running atomic.Int32
		every, err := timer.Every(time.Second, func() {
			if running.Add(1) > 1 {
				t.Error("two runs at the same time")
			}
			runs.write()
			time.Sleep(2500 * time.Millisecond)
			running.Add(-1)
		})
		require.NoError(t, err)
		time.Sleep(8 * time.Second)
		require.False(t, every.Stop(), "it is running")
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{time.Second, 4 * time.Second, 7 * time.Second}, runs.read())
		require.EqualValues(t, 4, timer.Stats().Missed)
	})
}

func TestATaskThatPanicsDoesNotRunAgain(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("oh") }, "Goexit": runtime.Goexit} {
		for _, executor := range []func(func()) error{nil, spawn} {
			synctest.Test(t, func(t *testing.T) {
				var log syncbuf.Buffer
				timer := newTestTimer(t, Config{Executor: executor, Logger: slog.New(slog.NewTextHandler(&log, nil))})
				runs := newDiary()
				_, err := timer.Every(time.Second, func() { runs.write(); end() })
				require.NoError(t, err)
				time.Sleep(time.Minute)
				require.Len(t, runs.read(), 1, name)
				require.Zero(t, timer.Pending())
				require.EqualValues(t, 1, timer.Stats().Panics)
				require.Contains(t, log.String(), "TestATaskThatPanicsDoesNotRunAgain")
			})
		}
	}
}

// After a stall of 60 s a task with a period of 1 s runs once, or not at all, and then on its grid.
func TestARunAfterAStall(t *testing.T) {
	const s = time.Second
	for skipAfter, want := range map[time.Duration][]time.Duration{
		0: {s, 2 * s, 63 * s, 64 * s, 65 * s}, 5 * s: {s, 2 * s, 64 * s, 65 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := newTestTimer(t, Config{SkipAfter: skipAfter})
			runs, once := newDiary(), newDiary()
			_, err := timer.Every(s, runs.write)
			require.NoError(t, err)
			add(t, timer, 2500*time.Millisecond, func() { time.Sleep(60500 * time.Millisecond) })
			dropped := add(t, timer, 10*s, once.write)
			time.Sleep(65*s + 500*time.Millisecond)
			require.Equal(t, want, runs.read(), "%v", skipAfter)
			require.False(t, dropped.Pending())
			if skipAfter == 0 {
				require.Len(t, once.read(), 1)
				require.EqualValues(t, 60, timer.Stats().Missed, "from 3 to 62 s")
			} else {
				require.Empty(t, once.read())
				require.EqualValues(t, 62, timer.Stats().Missed)
			}
		})
	}
}

// A Timeout is moved while an executor refuses it.
func TestAResetIsNotOverwrittenByARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := make(chan *Timeout, 1)
		var refusals atomic.Int32
		timer := newTestTimer(t, Config{Executor: func(run func()) error {
			if refusals.Add(1) > 1 {
				return spawn(run)
			}
			if !(<-handle).Reset(time.Hour) {
				t.Error("it is pending")
			}
			return errors.New("full")
		}})
		runs := newDiary()
		handle <- add(t, timer, time.Second, runs.write)
		time.Sleep(2 * time.Hour)
		require.Equal(t, []time.Duration{time.Hour + time.Second}, runs.read())
	})
}

// With a full pool no task runs before the time that Reset has confirmed.
func TestNothingIsEarlyWithAFullPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan bool, 1)
		timer := newTestTimer(t, Config{Executor: func(run func()) error {
			select {
			case slots <- true:
				go func() { time.Sleep(30 * time.Millisecond); run(); <-slots }()
				return nil
			default:
				time.Sleep(time.Millisecond) // a Reset comes meanwhile
				return errors.New("full")
			}
		}})
		type target struct {
			timeout *Timeout
			due     atomic.Int64
		}
		targets := make([]target, 100)
		for i := range targets {
			g := &targets[i]
			g.timeout = add(t, timer, 20*time.Millisecond, func() {
				if early := g.due.Load() - time.Now().UnixNano(); early > 0 {
					t.Errorf("%v early", time.Duration(early))
				}
			})
		}
		for range 20_000 {
			time.Sleep(time.Duration(rand.IntN(20_000_000)))
			g := &targets[rand.IntN(len(targets))]
			due := time.Now().Add(300 * time.Millisecond)
			if g.timeout.Reset(300 * time.Millisecond) {
				g.due.Store(due.UnixNano())
			}
		}
		require.Positive(t, timer.Stats().Refused)
		time.Sleep(time.Minute)
		require.Zero(t, timer.Pending())
	})
}

func TestATimeoutThatIsResetOrStoppedWhenDueIsNotSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var submitted atomic.Int32
		var mu sync.Mutex
		var others []*Timeout // guarded by mu
		timer := newTestTimer(t, Config{Executor: func(run func()) error { submitted.Add(1); run(); return nil }})
		runs := newDiary()
		act := func() {
			mu.Lock()
			defer mu.Unlock()
			for i, other := range others {
				if other.Stop(); i%2 == 0 {
					other.Reset(time.Hour)
				}
			}
			runs.write()
		}
		mu.Lock()
		for range 20 {
			others = append(others, add(t, timer, time.Second, act))
		}
		mu.Unlock()
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, submitted.Load(), "the first one to run has moved or stopped the others")
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, submitted.Load())
	})
}

func TestATimeoutInTheQueueOfAnExecutorIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue []func()
		timer := newTestTimer(t, Config{Executor: func(run func()) error { queue = append(queue, run); return nil }})
		var ran [4]int
		var all []*Timeout
		for i := range ran {
			all = append(all, add(t, timer, time.Second+time.Duration(i)*20*time.Millisecond, func() { ran[i]++ }))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, queue, 4)
		require.Equal(t, 4, timer.Pending())
		require.True(t, all[0].Stop())
		require.True(t, all[1].Reset(time.Hour))
		for _, run := range queue[:3] {
			run()
		}
		require.Equal(t, [4]int{0, 0, 1, 0}, ran)
		queue[2]() // a second time
		left, err := timer.Shutdown(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []*Timeout{all[1], all[3]}, left)
		queue[3]()
		require.Equal(t, [4]int{0, 0, 1, 0}, ran)
	})
}

func TestAnExecutorThatCallsRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan func(), 10)
		timer := newTestTimer(t, Config{Executor: func(run func()) error { calls <- run; return nil }})
		runs := newDiary()
		var again func()
		every, err := timer.Every(time.Second, func() {
			runs.write()
			again()
		})
		require.NoError(t, err)
		again = <-calls
		again()
		require.Len(t, runs.read(), 1, "it does not run within itself")
		again()
		every.Reset(time.Hour)
		again()
		require.Len(t, runs.read(), 1)
		entries := 0
		for _, s := range timer.core.shards {
			entries += s.wheel.Len()
		}
		require.Equal(t, 1, entries)
	})
}

func TestARefusedTaskIsTriedAgain(t *testing.T) {
	for name, refuse := range map[string]func() error{
		"error": func() error { return errors.New("full") }, "panic": func() error { panic("full") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncbuf.Buffer
				var calls atomic.Int32
				timer := newTestTimer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Executor: func(run func()) error {
					if calls.Add(1) <= 3 {
						return refuse()
					}
					return spawn(run)
				}})
				runs := newDiary()
				every, err := timer.Every(time.Second, runs.write)
				require.NoError(t, err)
				time.Sleep(2500 * time.Millisecond)
				require.Equal(t, []time.Duration{1300 * time.Millisecond, 2 * time.Second}, runs.read(), "the grid stays")
				require.EqualValues(t, 3, timer.Stats().Refused)
				require.Equal(t, 1, strings.Count(log.String(), "refused"), "one warning a second")
				require.True(t, every.Stop())
			})
		})
	}
}

func TestGoexitLeaksNothing(t *testing.T) {
	for name, executor := range map[string]func(func()) error{
		"inline": nil, "goroutines": spawn, "the same goroutine": func(run func()) error { run(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			timer, err := New(Config{Tick: time.Millisecond, Executor: executor, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ran := make(chan bool, 3)
			freed := make(chan bool, 1)
			func() {
				big := new([1 << 16]byte)
				runtime.AddCleanup(big, func(int) { freed <- true }, 0)
				add(t, timer, 0, func() { big[0]++; runtime.Goexit() })
			}()
			for range 3 { // some of them in the same tick
				add(t, timer, 0, func() { ran <- true })
			}
			for range 3 {
				<-ran
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return len(freed) == 1
			}, 10*time.Second, time.Millisecond, "the task stays in memory")
			left, err := timer.Shutdown(t.Context())
			require.NoError(t, err, "no task is running")
			require.Empty(t, left)
			require.EqualValues(t, 1, timer.Stats().Panics)
		})
	}
}

// A program may close its database as soon as Shutdown or a Stop that is true has returned.
func TestNothingRunsAfterShutdownOrStop(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			for range 3000 {
				timer, err := New(Config{Tick: time.Microsecond, Executor: executor})
				require.NoError(t, err)
				var closed, stopped atomic.Bool
				add(t, timer, 0, func() {
					runtime.Gosched()
					if closed.Load() {
						t.Error("a task runs after Shutdown")
					}
				})
				other := add(t, timer, time.Duration(rand.IntN(20_000)), func() {
					if stopped.Load() {
						t.Error("a task runs after Stop was true")
					}
				})
				time.Sleep(time.Duration(rand.IntN(20_000)))
				if other.Stop() {
					stopped.Store(true)
				}
				_, err = timer.Shutdown(t.Context())
				closed.Store(true)
				require.NoError(t, err)
			}
		})
	}
}

func TestShutdownReturnsTheTimeoutsThatWereNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
		add(t, timer, time.Second, nothing)
		add(t, timer, time.Hour, nothing).Stop()
		hour := add(t, timer, time.Hour, nothing)
		day, err := timer.Every(24*time.Hour, nothing)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		left, err := timer.Shutdown(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []*Timeout{hour, day}, left)
		require.NotNil(t, left[0].Task())
		require.False(t, hour.Stop())
		require.False(t, hour.Reset(0))
		require.False(t, hour.Pending())
		_, err = timer.AfterFunc(0, nothing)
		require.ErrorIs(t, err, ErrShutdown)
		left, err = timer.Shutdown(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
		require.Equal(t, Stats{Scheduled: 4, Runs: 1, Stopped: 3}, timer.Stats())
	})
}

func TestShutdownWaitsForRunningTasks(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, Config{Executor: executor})
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

func TestShutdownWithoutWaitingIsNoErrorIfNoTaskRuns(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		timer, err := New(Config{})
		require.NoError(t, err)
		add(t, timer, time.Hour, nothing)
		left, err := timer.Shutdown(over)
		require.NoError(t, err)
		require.Len(t, left, 1)
	}
}

func TestPendingNeverExceedsItsLimit(t *testing.T) {
	const limit = 1
	timer := newTestTimer(t, Config{MaxPending: limit, Tick: time.Microsecond, Executor: spawn})
	var all sync.WaitGroup
	var over atomic.Bool
	for range 4 {
		all.Go(func() {
			for !over.Load() {
				if timeout, err := timer.AfterFunc(time.Duration(rand.IntN(2000)), nothing); err == nil {
					if timeout.Stop(); rand.IntN(2) == 0 {
						timeout.Reset(0)
					}
				}
			}
		})
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if n := timer.Pending(); n < 0 || n > limit {
			t.Fatalf("%d are pending", n)
		}
	}
	over.Store(true)
	all.Wait()
	require.Eventually(t, func() bool { return timer.Pending() == 0 }, 10*time.Second, time.Millisecond)
	for range limit {
		add(t, timer, time.Hour, nothing)
	}
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

func TestThePendingLimitAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncbuf.Buffer
		timer := newTestTimer(t, Config{MaxPending: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		first := add(t, timer, time.Second, nothing)
		time.Sleep(2 * time.Second)
		every, err := timer.Every(time.Second, nothing)
		require.NoError(t, err, "a task that has run takes no place")
		time.Sleep(time.Minute)
		require.False(t, first.Reset(0), "a periodic one keeps its place")
		require.False(t, first.Pending())
		require.Contains(t, log.String(), "a timeout was not reset")
		require.True(t, every.Stop())
		require.False(t, first.Reset(time.Hour))
		require.True(t, first.Pending())
	})
}

func TestATaskThatBlocksIsLoggedByDefault(t *testing.T) {
	var log syncbuf.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	for name, executor := range map[string]func(func()) error{
		"inline": nil, "executor": func(run func()) error { time.Sleep(time.Hour); run(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer, err := New(Config{Executor: executor})
				require.NoError(t, err)
				before := strings.Count(log.String(), "blocks the goroutine")
				add(t, timer, time.Second, func() { time.Sleep(time.Hour) })
				for range 10 {
					add(t, timer, time.Second, func() {})
				}
				time.Sleep(1400 * time.Millisecond)
				synctest.Wait()
				require.Equal(t, before, strings.Count(log.String(), "blocks the goroutine"))
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, before+1, strings.Count(log.String(), "blocks the goroutine"))
				require.Contains(t, log.String(), "TestATaskThatBlocksIsLoggedByDefault")
				_, err = timer.Shutdown(t.Context())
				require.NoError(t, err)
			})
		})
	}
}

func TestATimeoutInALogIsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
		timeout := add(t, timer, 5*time.Second, nothing)
		var log syncbuf.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "timeout", timeout, "all", []*Timeout{timeout})
		const text = `"github.com/idlewheel/idlewheel/timer.nothing, due in 5s"`
		require.Contains(t, log.String(), `"timeout":`+text)
		require.Contains(t, log.String(), `"all":[`+text+`]`)
		timeout.Stop()
		require.Equal(t, "github.com/idlewheel/idlewheel/timer.nothing, not pending", fmt.Sprint(timeout))
		running := make(chan string)
		handle := make(chan *Timeout, 1)
		handle <- add(t, timer, 0, func() { running <- (<-handle).String() })
		require.Contains(t, <-running, ", running, not pending")
	})
}

func TestATimeoutIs48Bytes(t *testing.T) {
	require.EqualValues(t, 48, unsafe.Sizeof(Timeout{}), "the package comment says so, and 56 would take 64")
}

func TestSlowTasksMoveToTheSlowExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var aside atomic.Int32
		timer := newTestTimer(t, Config{
			SlowAfter: 100 * time.Millisecond, Executor: spawn,
			SlowExecutor: func(run func()) error { aside.Add(1); return spawn(run) },
		})
		slow := func() { time.Sleep(time.Second) }
		for i := range 13 {
			add(t, timer, time.Duration(i)*2*time.Second, slow)
			add(t, timer, time.Duration(i)*2*time.Second, nothing)
		}
		time.Sleep(50 * time.Second)
		require.EqualValues(t, 2, aside.Load(), "after eleven slow runs; the quick tasks do not move")
		require.EqualValues(t, 13, timer.Stats().Slow)
		time.Sleep(10 * time.Second)
		add(t, timer, 0, slow)
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 2, aside.Load(), "the minute is over")
	})
}

func TestOperationsDoNotAllocate(t *testing.T) {
	timer := newTestTimer(t, Config{MaxPending: 10})
	timeout := add(t, timer, time.Hour, nothing)
	d := time.Hour
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		d = 3*time.Hour - d
		timeout.Reset(d)
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() { timeout.Stop(); timeout.Reset(d) }))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { add(t, timer, time.Hour, nothing).Stop() }), 1.0)
}
