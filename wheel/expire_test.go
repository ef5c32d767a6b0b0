package wheel

import (
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

	"github.com/idlewheel/idlewheel/internal/syncbuf"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestATaskCancelsAnotherDueTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10 * collectAtOnce // more than one collect takes
		timer := newTestTimer(t, TimerConfig{})
		all := make([]*Timeout, n)
		var ran, gone int
		var mu sync.Mutex // guards all of them
		mu.Lock()
		for i := range all {
			all[i] = schedule(t, timer, time.Second, func(*Timeout) {
				mu.Lock()
				defer mu.Unlock()
				ran++
				for range 2 {
					if all[rand.IntN(n)].Cancel() {
						gone++
					}
				}
			})
		}
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Zero(t, timer.Pending())
		require.Equal(t, n, ran+gone, "each runs or is cancelled")
		require.Positive(t, gone)
		require.Empty(t, timer.Slots())
	})
}

func TestAPanicIsReportedAndTheTimerLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := make(chan any, 1)
		timer := newTestTimer(t, TimerConfig{OnPanic: func(_ *Timeout, v any, stack []byte) {
			assert.Contains(t, string(stack), "expire_test.go")
			panics <- v
		}})
		schedule(t, timer, 0, func(*Timeout) { panic("boom") })
		require.Equal(t, "boom", <-panics)
		fired := make(chan bool)
		schedule(t, timer, 0, func(*Timeout) { fired <- true })
		<-fired
		require.Equal(t, uint64(1), timer.Stats().Panics)
	})
}

func TestARefusedTaskIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		timer := newTestTimer(t, TimerConfig{Executor: func(run func()) error {
			switch tries.Add(1) {
			case 1:
				return errors.New("full")
			case 2:
				panic("worse")
			}
			go run()
			return nil
		}})
		fired := make(chan bool)
		schedule(t, timer, time.Second, func(*Timeout) { fired <- true })
		<-fired
		require.Equal(t, uint64(2), timer.Stats().Refused)
	})
}

func TestOnRefusedCancelsARefusedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handed := make(chan *Timeout, 1)
		full := errors.New("full")
		timer := newTestTimer(t, TimerConfig{
			Executor: func(func()) error { return full },
			OnRefused: func(timeout *Timeout, err error) time.Duration {
				assert.ErrorIs(t, err, full)
				handed <- timeout
				return -1
			},
		})
		var task cancelTask
		timeout, err := timer.NewTimeout(&task, time.Second)
		require.NoError(t, err)
		require.Same(t, timeout, <-handed)
		synctest.Wait()
		require.True(t, timeout.Cancelled())
		require.Equal(t, int32(1), task.cancelled.Load())
		require.Zero(t, timer.Pending())
		require.Empty(t, timer.queue.all(), "the executor does not hold it")
		left, err := timer.Stop()
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func TestACancelledDueTaskDoesNotReachTheExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		timer := newTestTimer(t, TimerConfig{Executor: func(run func()) error { calls.Add(1); run(); return nil }})
		var both [2]atomic.Pointer[Timeout]
		for i := range both {
			both[i].Store(schedule(t, timer, time.Second, func(*Timeout) { both[1-i].Load().Cancel() }))
		}
		time.Sleep(2 * time.Second)
		require.Equal(t, int32(1), calls.Load())
		require.Empty(t, timer.queue.all(), "what has run or was refused is not held")
	})
}

// A Timeout that waits in an executor is reset, run, and stopped in any order: Stop returns it.
func TestAResetInAnExecutorRacingStopIsReturned(t *testing.T) {
	for range 300 {
		runs := make(chan func(), 1)
		timer, err := NewTimer(TimerConfig{Tick: time.Millisecond, Slots: 16, Executor: func(run func()) error { runs <- run; return nil }})
		require.NoError(t, err)
		timeout := schedule(t, timer, 0, func(*Timeout) { t.Error("it was reset") })
		run := <-runs
		require.True(t, timeout.Reset(time.Hour))
		var running sync.WaitGroup
		running.Go(run)
		left, err := timer.Stop()
		require.NoError(t, err)
		running.Wait()
		require.Len(t, left, 1)
	}
}

func TestATimeoutInAnExecutorIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []func()
		timer := newTestTimer(t, TimerConfig{Executor: func(run func()) error {
			waiting = append(waiting, run)
			return nil
		}})
		timeouts := make([]*Timeout, 3)
		for i := range timeouts {
			timeouts[i] = schedule(t, timer, time.Duration(20*i)*time.Millisecond, func(*Timeout) { t.Errorf("%d has run", i) })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 3, timer.Pending())
		require.True(t, timeouts[0].Cancel())
		require.True(t, timeouts[1].Reset(time.Hour))
		require.Len(t, waiting, 3)
		waiting[0]()
		waiting[1]()
		left, err := timer.Stop()
		require.NoError(t, err)
		require.ElementsMatch(t, timeouts[1:], left)
		waiting[2]()
		require.Zero(t, timer.Pending())
	})
}

func TestMissedTimeoutsAreRunOrDropped(t *testing.T) {
	for _, policy := range []MissedPolicy{RunMissed, DropMissed} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported atomic.Int32
				timer := newTestTimer(t, TimerConfig{
					Missed: policy, OnMissed: func(*Timeout, time.Duration) { reported.Add(1) },
				})
				schedule(t, timer, time.Second, func(*Timeout) { time.Sleep(time.Minute) })
				var task cancelTask
				for i := range 10 {
					_, err := timer.NewTimeout(&task, time.Duration(10*(i+1))*time.Second)
					require.NoError(t, err)
				}
				time.Sleep(200 * time.Second)
				synctest.Wait()
				s := timer.Stats()
				require.Equal(t, uint64(5), s.Missed, "due at 10 to 50 s, run after 61 s; the sixth is a second late")
				if policy == RunMissed {
					require.Equal(t, int32(10), task.ran.Load())
					return
				}
				require.Equal(t, int32(5), task.ran.Load())
				require.Equal(t, int32(5), task.cancelled.Load())
				require.Equal(t, int32(5), reported.Load())
				require.Equal(t, uint64(5), s.Dropped)
			})
		})
	}
}

func TestSlowTasksMoveToTheSlowExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var aside, reported atomic.Int32
		timer := newTestTimer(t, TimerConfig{
			SlowAfter: 100 * time.Millisecond, SlowLimit: 3,
			OnSlow:       func(_ *Timeout, took time.Duration) { reported.Add(1); assert.Equal(t, time.Second, took) },
			SlowExecutor: func(run func()) error { aside.Add(1); go run(); return nil },
		})
		slow := func(*Timeout) { time.Sleep(time.Second) }
		for i := range 6 {
			schedule(t, timer, time.Duration(i)*5*time.Second, slow)
			schedule(t, timer, time.Duration(i)*5*time.Second, nothing)
		}
		time.Sleep(50 * time.Second)
		require.Equal(t, int32(2), aside.Load(), "after four slow runs; the quick task is not concerned")
		require.Equal(t, int32(6), reported.Load())
		time.Sleep(time.Minute)
		schedule(t, timer, 0, slow)
		time.Sleep(5 * time.Second)
		require.Equal(t, int32(2), aside.Load(), "the minute is over")
	})
}

func TestAResetInAnExecutorRunsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := NewPool(1, 100)
		require.NoError(t, err)
		defer pool.Close()
		timer := newTestTimer(t, TimerConfig{Executor: pool.Execute})
		began := time.Now()
		fired := make(chan time.Duration, 1)
		// Blocks the only worker.
		schedule(t, timer, time.Second, func(*Timeout) { time.Sleep(5 * time.Second) })
		waiting := schedule(t, timer, 2*time.Second, func(*Timeout) { fired <- time.Since(began) })
		time.Sleep(3 * time.Second)
		require.True(t, waiting.Reset(30*time.Second))
		require.InDelta(t, 33*time.Second, <-fired, float64(10*time.Millisecond))
	})
}

// TestARunThatMeetsAResetLeavesTheEarlierDeadline has a run that files the Timeout after one Reset,
// while another Reset comes.
func TestARunThatMeetsAResetLeavesTheEarlierDeadline(t *testing.T) {
	runs := make(chan func(), 1)
	timer := newTestTimer(t, TimerConfig{Tick: time.Millisecond, Executor: func(run func()) error { runs <- run; return nil }})
	for range 300 {
		timeout := schedule(t, timer, 0, nothing)
		run := <-runs
		require.True(t, timeout.Reset(time.Hour))
		s := timeout.shard
		s.mu.Lock() // as the driver does for some microseconds
		var both sync.WaitGroup
		both.Go(run)
		runtime.Gosched()
		both.Go(func() { timeout.Reset(20 * time.Minute) })
		for deadlineOf(timeout.word.Load()) > timer.now()+30*time.Minute {
			runtime.Gosched()
		}
		s.mu.Unlock()
		both.Wait()
		s.mu.Lock()
		for other, tick := range walkSlots(t, &s.wheel.hierarchy, &s.wheel.blocks) {
			if other == timeout {
				require.LessOrEqual(t, tick, s.wheel.tickOf(int64(deadlineOf(timeout.word.Load()))), "in a slot after its deadline")
			}
		}
		s.mu.Unlock()
		timeout.Cancel()
	}
}

func TestARefusedTaskCanBeResetToBeforeItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		timer := newTestTimer(t, TimerConfig{
			Executor: func(run func()) error {
				if refuse {
					return ErrPoolFull
				}
				go run()
				return nil
			},
			OnRefused: func(*Timeout, error) time.Duration { refuse = false; return time.Hour },
		})
		began := time.Now()
		fired := make(chan time.Duration, 2)
		reset := schedule(t, timer, 0, func(*Timeout) { fired <- time.Since(began) })
		time.Sleep(time.Second)
		require.True(t, reset.Reset(time.Second))
		require.InDelta(t, 2*time.Second, <-fired, float64(10*time.Millisecond))

		refuse = true
		schedule(t, timer, 0, func(*Timeout) { fired <- time.Since(began) })
		require.InDelta(t, time.Hour+2*time.Second, <-fired, float64(30*time.Millisecond), "the retry that the hook has asked for")
	})
}

func TestGoexitInATaskIsReportedAndEndsNeitherTimerNorPool(t *testing.T) {
	pool, err := NewPool(1, 8)
	require.NoError(t, err)
	defer pool.Close()
	for name, executor := range map[string]func(func()) error{"inline": nil, "pool": pool.Execute} {
		t.Run(name, func(t *testing.T) {
			reported := make(chan any, 1)
			timer := newTestTimer(t, TimerConfig{
				Tick: time.Millisecond, Executor: executor, OnPanic: func(_ *Timeout, v any, _ []byte) { reported <- v },
			})
			ran := make(chan bool, 2)
			schedule(t, timer, 0, func(*Timeout) { runtime.Goexit() })
			schedule(t, timer, 0, func(*Timeout) { ran <- true }) // in the same slot, most likely
			require.ErrorIs(t, (<-reported).(error), errGoexit)
			<-ran
			schedule(t, timer, 0, func(*Timeout) { ran <- true })
			<-ran
			require.ErrorIs(t, second(timer.Stop()), nil)
		})
	}
}

func TestAPanicOfAHookIsLogged(t *testing.T) {
	slow := func(*Timeout) { time.Sleep(10 * time.Millisecond) }
	for name, tc := range map[string]struct {
		cfg  TimerConfig
		task func(*Timeout)
	}{
		"OnPanic": {TimerConfig{OnPanic: func(*Timeout, any, []byte) { panic("hook") }}, func(*Timeout) { panic("task") }},
		"OnSlow":  {TimerConfig{SlowAfter: 1, OnSlow: func(*Timeout, time.Duration) { panic("hook") }}, slow},
		"SlowKey": {TimerConfig{SlowAfter: 1, SlowExecutor: func(run func()) error { go run(); return nil },
			SlowKey: func(*Timeout) any { panic("hook") }}, slow},
		"SlowKey that does not compare": {TimerConfig{SlowAfter: 1, SlowExecutor: func(run func()) error { go run(); return nil },
			SlowKey: func(*Timeout) any { return []int{1} }}, slow},
		"OnMissed": {TimerConfig{Missed: DropMissed, MissedAfter: 1, OnMissed: func(*Timeout, time.Duration) { panic("hook") }}, nothing},
		"OnRefused": {TimerConfig{Executor: func(func()) error { return ErrPoolFull },
			OnRefused: func(*Timeout, error) time.Duration { panic("hook") }}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log syncbuf.Buffer
				tc.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				timer := newTestTimer(t, tc.cfg)
				schedule(t, timer, time.Millisecond, tc.task)
				time.Sleep(time.Second)
				if name != "SlowKey that does not compare" {
					require.Contains(t, log.String(), `panic=hook`)
				}
				require.Contains(t, []int{0, 1}, timer.Pending()) // the Timer works: 1 is refused repeatedly
			})
		})
	}
}

func TestAPanicIsLoggedWithoutALogger(t *testing.T) {
	var log syncbuf.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	timer := newTestTimer(t, TimerConfig{Tick: time.Millisecond})
	schedule(t, timer, 0, func(*Timeout) { panic("oh") })
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "panic=oh") }, 10*time.Second, time.Millisecond)
	require.Contains(t, log.String(), "TestAPanicIsLoggedWithoutALogger", "it says which task")
}

func TestAPanicInCancelledIsReported(t *testing.T) {
	panics := 0
	timer := newTestTimer(t, TimerConfig{OnPanic: func(*Timeout, any, []byte) { panics++ }})
	timeout, err := timer.NewTimeout(panicsWhenCancelled{}, time.Hour)
	require.NoError(t, err)
	require.True(t, timeout.Cancel())
	require.Equal(t, 1, panics)
}

type panicsWhenCancelled struct{}

func (panicsWhenCancelled) Run(*Timeout)       {}
func (panicsWhenCancelled) Cancelled(*Timeout) { panic("oh") }

func TestSlowKeyGroupsTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var aside []time.Duration
		began := time.Now()
		timer := newTestTimer(t, TimerConfig{
			SlowAfter: 100 * time.Millisecond, SlowLimit: 2, SlowKey: func(*Timeout) any { return "all" },
			SlowExecutor: func(run func()) error {
				aside = append(aside, time.Since(began).Truncate(time.Second))
				go run()
				return nil
			},
		})
		for i, task := range []func(*Timeout){
			func(*Timeout) { time.Sleep(time.Second) },
			func(*Timeout) { time.Sleep(2 * time.Second) },
			func(*Timeout) { time.Sleep(3 * time.Second) },
		} {
			schedule(t, timer, time.Duration(i)*5*time.Second, task)
		}
		schedule(t, timer, 20*time.Second, nothing)
		schedule(t, timer, 65*time.Second, nothing)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{20 * time.Second}, aside, "after three slow runs of other tasks, until the minute is over")
	})
}

func TestLatenessIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		schedule(t, timer, time.Second, func(*Timeout) { time.Sleep(40 * time.Millisecond) })
		// In the tick after: 30 ms late at most.
		schedule(t, timer, time.Second+15*time.Millisecond, nothing)
		time.Sleep(2 * time.Second)
		lateness := timer.Stats().Lateness
		require.EqualValues(t, 1, lateness[0], "in time")
		require.EqualValues(t, 1, lateness[15], "16 to 33 ms late")
	})
}

func TestAFinishedTaskIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		for range 100 {
			schedule(t, timer, time.Second, nothing)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, s := range timer.shards {
			s.mu.Lock()
			for _, timeout := range s.due[:cap(s.due)] {
				assert.Nil(t, timeout, "a list of the shard still refers to it")
			}
			s.mu.Unlock()
		}
	})
}
