package wheel

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAPeriodicTimeoutKeepsItsPlaceOfMaxPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{MaxPending: 1})
		periodic, err := timer.ScheduleAtFixedRate(TaskFunc(nothing), 0, time.Second)
		require.NoError(t, err)
		time.Sleep(10*time.Second + time.Millisecond)
		require.ErrorIs(t, second(timer.NewTimeout(TaskFunc(nothing), 0)), ErrTooManyPending)
		require.True(t, periodic.Cancel())
		schedule(t, timer, 0, nothing)
	})
}

func TestFixedRateDoesNotDriftAndFixedDelayDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := NewPool(4, 0)
		require.NoError(t, err)
		defer pool.Close()
		timer := newTestTimer(t, TimerConfig{Executor: pool.Execute})
		_, err = timer.ScheduleAtFixedRate(TaskFunc(nothing), 0, time.Millisecond)
		require.ErrorContains(t, err, "at least the tick")
		var rate, delay []time.Duration
		var mu sync.Mutex
		record := func(to *[]time.Duration) TaskFunc {
			began := time.Now()
			return func(timeout *Timeout) {
				mu.Lock()
				defer mu.Unlock()
				if *to = append(*to, time.Since(began)); len(*to) == 4 {
					assert.True(t, timeout.Cancel(), "from within")
				}
			}
		}
		_, err = timer.ScheduleAtFixedRate(record(&rate), time.Second, 25*time.Millisecond)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		_, err = timer.ScheduleWithFixedDelay(record(&delay), time.Second, 25*time.Millisecond)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		ms := time.Millisecond
		require.Equal(t, []time.Duration{1000 * ms, 1030 * ms, 1050 * ms, 1080 * ms}, rate, "the grid of 25 ms, rounded up to ticks")
		require.Equal(t, []time.Duration{1000 * ms, 1030 * ms, 1060 * ms, 1090 * ms}, delay, "each from the end of the one before")
		require.Zero(t, timer.Pending())
	})
}

func TestAPeriodicTimeoutAfterAStall(t *testing.T) {
	for _, policy := range []MissedPolicy{RunMissed, DropMissed} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, TimerConfig{Missed: policy, MissedAfter: time.Second})
				began := time.Now()
				var runs []time.Duration // owned by the goroutine of the Timer
				periodic, err := timer.ScheduleAtFixedRate(TaskFunc(func(*Timeout) {
					runs = append(runs, time.Since(began))
				}), time.Second, time.Second)
				require.NoError(t, err)
				// Until 4.5 s.
				schedule(t, timer, 1500*time.Millisecond, func(*Timeout) { time.Sleep(3 * time.Second) })
				time.Sleep(6500 * time.Millisecond)
				synctest.Wait()
				require.True(t, periodic.Cancel())
				s, ms := time.Second, time.Millisecond
				want := []time.Duration{s, 4500 * ms, 4500 * ms, 4500 * ms, 5 * s, 6 * s}
				if policy == DropMissed { // those of 2 s, 3 s and 4 s
					want = []time.Duration{s, 5 * s, 6 * s}
				}
				for i, at := range runs {
					require.LessOrEqual(t, (at - want[min(i, len(want)-1)]).Abs(), 20*ms, "%v", runs)
				}
				require.Len(t, runs, len(want), "the grid is caught up with, one run after the other")
				dropped := uint64(6 - len(want))
				require.Equal(t, dropped, timer.Stats().Dropped)
			})
		})
	}
}

func TestStopDuringAPeriodicRunDoesNotReturnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{Executor: func(run func()) error { go run(); return nil }})
		task := &slowCancelTask{began: make(chan bool), hold: make(chan bool)}
		timeout, err := timer.ScheduleWithFixedDelay(task, 0, time.Second)
		require.NoError(t, err)
		<-task.began
		left, err := timer.Stop()
		require.NoError(t, err)
		require.Empty(t, left, "it has run")
		close(task.hold)
		synctest.Wait()
		require.True(t, timeout.Cancelled())
		require.Equal(t, int32(1), task.cancelled.Load())
		require.Zero(t, timer.Pending())
	})
}

// slowCancelTask runs until it is released.
type slowCancelTask struct {
	cancelTask
	began, hold chan bool
}

func (c *slowCancelTask) Run(*Timeout) {
	c.began <- true
	<-c.hold
}

func TestAPeriodicTimeoutIsCancelledWhileItRunsAndBetweenRuns(t *testing.T) {
	// Cancel must not lose to the end of a run, which makes the Timeout pending again.
	timer := newTestTimer(t, TimerConfig{Tick: time.Microsecond, Executor: func(run func()) error { go run(); return nil }})
	for range 2000 {
		var runs atomic.Int64
		timeout, err := timer.ScheduleWithFixedDelay(TaskFunc(func(*Timeout) { runs.Add(1) }), 0, time.Microsecond)
		require.NoError(t, err)
		for runs.Load() == 0 {
			runtime.Gosched()
		}
		if !timeout.Cancel() {
			t.Fatal("a periodic Timeout cannot be cancelled")
		}
	}
	require.Zero(t, timer.Pending())
}

func TestAFixedRateOfOneTickCatchesUp(t *testing.T) {
	const tick = 10 * time.Millisecond
	for _, policy := range []MissedPolicy{RunMissed, DropMissed} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, TimerConfig{Tick: tick, Missed: policy, MissedAfter: time.Second})
				runs := 0 // owned by the goroutine of the Timer
				periodic, err := timer.ScheduleAtFixedRate(TaskFunc(func(*Timeout) { runs++ }), 0, tick)
				require.NoError(t, err)
				schedule(t, timer, time.Second, func(*Timeout) { time.Sleep(6 * time.Second) })
				time.Sleep(10 * time.Second) // 3 s after the stall
				synctest.Wait()
				for _, s := range timer.shards {
					s.mu.Lock()
					checkTimeouts(t, &s.wheel)
					s.mu.Unlock()
				}
				require.True(t, periodic.Cancel())
				stats := timer.Stats()
				require.InDelta(t, 1001, runs+int(stats.Dropped), 2, "a run for each period, except for dropped ones")
				if policy == DropMissed {
					require.InDelta(t, 600, stats.Dropped, 2, "those of the stall")
				} else {
					require.Zero(t, stats.Dropped)
					require.InDelta(t, 520, stats.Missed, 25, "runs that were more than a second late")
				}
			})
		})
	}
}

func TestARefusedRunDoesNotMoveTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := 3
		timer := newTestTimer(t, TimerConfig{Executor: func(run func()) error {
			if refuse--; refuse >= 0 {
				return ErrPoolFull
			}
			run()
			return nil
		}})
		began := time.Now()
		var runs []time.Duration
		_, err := timer.ScheduleAtFixedRate(TaskFunc(func(*Timeout) { runs = append(runs, time.Since(began)) }), time.Second, time.Second)
		require.NoError(t, err)
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		s, ms := time.Second, time.Millisecond
		require.Len(t, runs, 3)
		for i, want := range []time.Duration{s + 300*ms, 2 * s, 3 * s} {
			require.InDelta(t, want, runs[i], float64(35*ms), "%v", runs)
		}
	})
}

func TestAPeriodicTaskThatPanicsIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		timer := newTestTimer(t, TimerConfig{MaxPending: 1, OnPanic: func(*Timeout, any, []byte) {}})
		periodic, err := timer.ScheduleAtFixedRate(TaskFunc(func(*Timeout) { runs++; panic("oh") }), 0, time.Second)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, runs)
		require.True(t, periodic.Expired())
		require.Zero(t, timer.Pending())
		schedule(t, timer, time.Hour, nothing) // its place is free
	})
}

func TestAPeriodicTimeoutKeepsItsPlaceWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{MaxPending: 1})
		var during []error
		periodic, err := timer.ScheduleAtFixedRate(TaskFunc(func(timeout *Timeout) {
			during = append(during, second(timeout.Timer().NewTimeout(TaskFunc(nothing), time.Hour)))
			if len(during) == 2 {
				timeout.Cancel()
				during = append(during, second(timeout.Timer().NewTimeout(TaskFunc(nothing), time.Hour)))
			}
		}), 0, time.Second)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, periodic.Cancelled())
		require.Len(t, during, 3)
		require.ErrorIs(t, during[0], ErrTooManyPending)
		require.ErrorIs(t, during[1], ErrTooManyPending)
		require.NoError(t, during[2], "free once it is cancelled")
		require.Equal(t, 1, timer.Pending())
	})
}
