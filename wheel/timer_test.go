package wheel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newTestTimer(t testing.TB, cfg TimerConfig) *Timer {
	t.Helper()
	timer, err := NewTimer(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = timer.Stop() })
	return timer
}

func schedule(t testing.TB, timer *Timer, delay time.Duration, task func(*Timeout)) *Timeout {
	t.Helper()
	timeout, err := timer.NewTimeout(TaskFunc(task), delay)
	require.NoError(t, err)
	return timeout
}

func nothing(*Timeout) {}

func TestTimerConfigIsChecked(t *testing.T) {
	_, err := NewTimer(TimerConfig{Tick: -1, Slots: 3, MaxPending: -1, SlowAfter: -1, SlowLimit: -1, MissedAfter: -1, Missed: 7})
	for _, want := range []string{"tick", "slots", "MaxPending", "SlowAfter", "SlowLimit", "MissedAfter", "Missed is 7"} {
		require.ErrorContains(t, err, want)
	}
}

func TestTimeoutsExpireAtTheirTick(t *testing.T) {
	const tick = 10 * time.Millisecond
	turn := 1024 * tick
	for _, delay := range []time.Duration{
		math.MinInt64, -1, 0, 1, tick - 1, tick, tick + 1, turn - 1, turn, turn + 1, 7*turn + 3, 24 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := newTestTimer(t, TimerConfig{Tick: tick})
			began := time.Now()
			time.Sleep(tick / 3) // between two ticks
			deadline := time.Since(began) + max(delay, 0)
			fired := make(chan time.Duration, 1)
			timeout := schedule(t, timer, delay, func(*Timeout) { fired <- time.Since(began) })
			at := <-fired
			require.GreaterOrEqual(t, at, deadline, "%v: early", delay)
			require.Less(t, at-deadline, tick, "%v: late", delay)
			require.True(t, timeout.Expired())
			require.False(t, timeout.Cancelled())
			require.False(t, timeout.Cancel())
			require.False(t, timeout.Reset(time.Hour))
			require.Zero(t, timer.Pending())
			require.Same(t, timer, timeout.Timer())
		})
	}
}

func TestALongDelayIsClamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		schedule(t, timer, math.MaxInt64, nothing)
		time.Sleep(70 * 365 * 24 * time.Hour)
		require.Equal(t, 1, timer.Pending())
	})
}

func TestResetMovesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		began := time.Now()
		fired := make(chan time.Duration, 1)
		timeout := schedule(t, timer, time.Second, func(*Timeout) { fired <- time.Since(began) })
		for range 20 {
			time.Sleep(900 * time.Millisecond)
			require.True(t, timeout.Reset(time.Second), "a heartbeat")
		}
		require.Equal(t, 19*time.Second, <-fired)
		timeout = schedule(t, timer, time.Hour, func(*Timeout) { fired <- time.Since(began) })
		require.True(t, timeout.Reset(time.Second))
		require.Equal(t, 20*time.Second, <-fired, "an earlier one wakes the driver")
		require.Equal(t, uint64(2), timer.Stats().Expired)
	})
}

func TestConcurrentResetsToEarlierLeaveTheEarlierOne(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	for range 5000 {
		timeout := schedule(t, timer, time.Hour, nothing)
		require.Positive(t, timer.Pending(), "and it is in the wheel")
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() { timeout.Reset(time.Duration(20+10*i) * time.Minute) })
		}
		both.Wait()
		s := timeout.shard
		s.mu.Lock()
		checkTimeouts(t, &s.wheel)
		s.mu.Unlock()
		timeout.Cancel()
	}
}

func TestMaxPendingIsFreeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{MaxPending: 2})
		one, two := schedule(t, timer, time.Second, nothing), schedule(t, timer, time.Hour, nothing)
		for range 3 {
			_, err := timer.NewTimeout(TaskFunc(nothing), time.Second)
			require.ErrorIs(t, err, ErrTooManyPending)
		}
		two.Cancel()
		schedule(t, timer, time.Hour, nothing)
		time.Sleep(time.Second + 10*time.Millisecond)
		synctest.Wait()
		require.True(t, one.Expired())
		schedule(t, timer, time.Hour, nothing)
		require.Equal(t, 2, timer.Pending())
		for _, none := range []Task{nil, TaskFunc(nil)} {
			require.ErrorIs(t, second(timer.NewTimeout(none, 0)), ErrNoTask)
			require.ErrorIs(t, second(timer.ScheduleAtFixedRate(none, 0, time.Hour)), ErrNoTask)
		}
	})
}

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

// cancelTask counts what becomes of it.
type cancelTask struct{ ran, cancelled atomic.Int32 }

func (c *cancelTask) Run(*Timeout)       { c.ran.Add(1) }
func (c *cancelTask) Cancelled(*Timeout) { c.cancelled.Add(1) }

func TestStopReturnsExactlyWhatHadNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		var ran, gone, left cancelTask
		for _, err := range []error{
			second(timer.NewTimeout(&ran, time.Second)), second(timer.NewTimeout(&left, time.Hour)), second(timer.NewTimeout(&left, 48*time.Hour)),
		} {
			require.NoError(t, err)
		}
		cancelled, err := timer.NewTimeout(&gone, time.Hour)
		require.NoError(t, err)
		require.True(t, cancelled.Cancel())
		require.False(t, cancelled.Cancel())
		time.Sleep(2 * time.Second)
		all, err := timer.Stop()
		require.NoError(t, err)
		require.Len(t, all, 2)
		for _, timeout := range all {
			require.Same(t, &left, timeout.Task())
			require.True(t, timeout.Cancelled())
		}
		require.Equal(t, []int32{1, 0, 0, 1, 0, 2}, []int32{
			ran.ran.Load(), ran.cancelled.Load(), gone.ran.Load(), gone.cancelled.Load(), left.ran.Load(), left.cancelled.Load(),
		})
		require.Zero(t, timer.Pending())
		again, err := timer.Stop()
		require.NoError(t, err)
		require.Empty(t, again)
		_, err = timer.NewTimeout(&ran, 0)
		require.ErrorIs(t, err, ErrStopped)
		require.ErrorIs(t, timer.Start(), ErrStopped)
		require.Equal(t, uint64(4), timer.Stats().Scheduled, "what was refused is not counted")
	})
}

func second[A any](_ A, err error) error { return err }

func TestStopFromATaskIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		errs := make(chan error, 1)
		schedule(t, timer, 0, func(timeout *Timeout) { errs <- second(timeout.Timer().Stop()) })
		require.ErrorIs(t, <-errs, ErrStopInTask)
		fired := make(chan bool, 1)
		schedule(t, timer, 0, func(*Timeout) { fired <- true })
		require.True(t, <-fired, "the timer goes on")
	})
}

func TestStopDoesNotWaitForAStuckTaskForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		stuck := make(chan bool)
		var ran atomic.Pointer[Timeout]
		block := func(timeout *Timeout) {
			assert.True(t, ran.CompareAndSwap(nil, timeout), "one of the two must not run after Stop")
			<-stuck
		}
		one, two := schedule(t, timer, 0, block), schedule(t, timer, 0, block)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left, err := timer.StopContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		behind := one
		if ran.Load() == one {
			behind = two
		}
		require.Len(t, left, 1)
		require.Same(t, behind, left[0], "it was due, and had not run")
		close(stuck)
		left, err = timer.Stop()
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func TestNewTimeoutRacingStopLosesNothing(t *testing.T) {
	for range 50 {
		timer, err := NewTimer(TimerConfig{Tick: time.Millisecond})
		require.NoError(t, err)
		var ran, refused, accepted atomic.Int64
		var producers sync.WaitGroup
		for range 4 {
			producers.Go(func() {
				for i := range 2000 {
					_, err := timer.NewTimeout(TaskFunc(func(*Timeout) { ran.Add(1) }), time.Duration(i%5)*time.Millisecond)
					if errors.Is(err, ErrStopped) {
						refused.Add(1)
					} else if err == nil {
						accepted.Add(1)
					}
				}
			})
		}
		for moment := rand.Int64N(8000); accepted.Load() < moment; { // Stop in the middle
			runtime.Gosched()
		}
		looking := make(chan bool)
		var lookers sync.WaitGroup
		lookers.Go(func() { // who reads what has come in, also after Stop
			for {
				select {
				case <-looking:
					return
				default:
					timer.Pending()
				}
			}
		})
		left, err := timer.Stop()
		require.NoError(t, err)
		producers.Wait()
		close(looking)
		lookers.Wait()
		require.Equal(t, int64(8000), refused.Load()+accepted.Load())
		require.Equal(t, accepted.Load(), ran.Load()+int64(len(left)))
		require.Zero(t, timer.Pending())
	}
}

// Each Timeout is cancelled once, or runs once, or is returned by Stop once, while goroutines do all they can to each other's.
func TestEachTimeoutHasOneFate(t *testing.T) {
	pool, err := NewPool(2, 1<<12)
	require.NoError(t, err)
	defer pool.Close()
	for _, executor := range []func(func()) error{nil, pool.Execute} {
		timer, err := NewTimer(TimerConfig{Tick: time.Millisecond, Executor: executor})
		require.NoError(t, err)
		var ran, gone atomic.Int64
		var shared [64]atomic.Pointer[Timeout]
		var producers sync.WaitGroup
		const each = 20_000
		for range 4 {
			producers.Go(func() {
				for range each {
					timeout, err := timer.NewTimeout(TaskFunc(func(*Timeout) { ran.Add(1) }), time.Duration(rand.IntN(20))*time.Millisecond)
					if !assert.NoError(t, err) {
						return
					}
					shared[rand.IntN(len(shared))].Store(timeout)
					if other := shared[rand.IntN(len(shared))].Load(); other == nil {
						continue
					} else if rand.IntN(2) == 0 {
						other.Reset(time.Duration(rand.IntN(20)) * time.Millisecond)
					} else if other.Cancel() {
						gone.Add(1)
					}
				}
			})
		}
		producers.Wait()
		for range 1000 { // more that wait
			_, err := timer.NewTimeout(TaskFunc(func(*Timeout) { ran.Add(1) }), time.Hour)
			require.NoError(t, err)
		}
		left, err := timer.Stop()
		require.NoError(t, err)
		s := timer.Stats()
		require.Equal(t, uint64(4*each+1000), s.Scheduled)
		require.Equal(t, int64(s.Cancelled), gone.Load()+int64(len(left)))
		require.Zero(t, s.Pending)
		require.Eventually(t, func() bool { return int64(s.Scheduled) == ran.Load()+gone.Load()+int64(len(left)) },
			10*time.Second, time.Millisecond, "those that an executor has begun to run end")
	}
}

func TestTasksCancelOthersThatAreDueWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10 * collectAtOnce // so that most of the slot is still to be drained
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

func TestInboxesAreReadByThoseWhoFillThem(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	const n = 100 * readAtOnce
	slack := int64(10 * readAtOnce * len(timer.shards)) // in each of two inboxes; ten times what it is without -race
	all := make([]*Timeout, n)
	for i := range all {
		all[i] = schedule(t, timer, time.Hour, nothing)
	}
	read := func(count func(s *shard) int64) (sum int64) {
		for _, s := range timer.shards {
			s.mu.Lock()
			sum += count(s)
			s.mu.Unlock()
		}
		return sum
	}
	require.GreaterOrEqual(t, read(func(s *shard) int64 { return s.entered }), n-slack)
	for _, timeout := range all {
		timeout.Cancel()
	}
	require.GreaterOrEqual(t, read(func(s *shard) int64 { return s.cancelled }), n-2*slack)
	require.Zero(t, timer.Pending())
	require.Zero(t, read(func(s *shard) int64 { return s.unread.Load() }), "none of the cancelled")
}

func TestAdvanceStopsAtItsLimit(t *testing.T) {
	h, err := newHierarchy(time.Millisecond, 16)
	require.NoError(t, err)
	w := timeouts{hierarchy: h}
	for range 10 {
		w.file(new(Timeout), time.Millisecond)
	}
	taken := 0
	take := func(*Timeout) { taken++ }
	require.True(t, w.advance(time.Millisecond, 4, take))
	require.Equal(t, 4, taken)
	require.False(t, w.advance(time.Millisecond, 7, take))
	require.Equal(t, 10, taken)
}

func TestTheDriverIsWokenOnlyForAnEarlierTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{Tick: 10 * time.Millisecond})
		schedule(t, timer, time.Second, nothing)
		synctest.Wait()
		require.Equal(t, int64(990*time.Millisecond+1), timer.wakeBelow.Load())
	})
}

func TestACancelledTaskIsLetGo(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	var freed atomic.Int64
	const n = 1000
	for range n {
		big := new([1 << 10]byte)
		runtime.AddCleanup(big, func(int) { freed.Add(1) }, 0)
		timeout, err := timer.NewTimeout(TaskFunc(func(*Timeout) { big[0]++ }), 24*time.Hour)
		require.NoError(t, err)
		require.True(t, timeout.Cancel())
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return freed.Load() >= n-int64(2*readAtOnce*len(timer.shards))
	}, 10*time.Second, time.Millisecond, "all but those of the last calls")
}

// What comes in while Stop is under way is refused by the one who brings it, also if somebody looks at it in between.
func TestWhatIsReadAfterStopIsLeftToAccept(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	require.NoError(t, second(timer.Stop()))
	s := timer.shards[0]
	late := &Timeout{task: TaskFunc(nothing), shard: s}
	late.word.Store(newWord(0, pending) | newBit)
	s.added.post(late) // accept is here
	require.Zero(t, timer.Pending())
	require.True(t, isNew(late.word.Load()), "accept can refuse it")
	require.Zero(t, timer.Stats().Scheduled)
}

func TestACancelledTimeoutIsNotFiledAgain(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	timeout := schedule(t, timer, time.Hour, nothing)
	require.True(t, timeout.Cancel())
	require.True(t, timeout.shard.refile(timeout, time.Hour), "as a run does that has not seen the Cancel")
	require.Empty(t, timer.Slots())
}

func TestAPanicIsReportedAndTheTimerLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := make(chan any, 1)
		timer := newTestTimer(t, TimerConfig{OnPanic: func(_ *Timeout, v any, stack []byte) {
			assert.Contains(t, string(stack), "timer_test.go")
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

func TestARefusedTaskIsHandedBack(t *testing.T) {
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

func TestWhatIsCancelledWhenItIsDueDoesNotReachTheExecutor(t *testing.T) {
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

// Reset of what waits in an executor, its run, and Stop: whichever comes first, it is returned.
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

func TestAPeriodicTimeoutAfterAStall(t *testing.T) {
	for _, policy := range []MissedPolicy{RunMissed, DropMissed} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, TimerConfig{Missed: policy, MissedAfter: time.Second})
				began := time.Now()
				var runs []time.Duration // of the goroutine of the Timer
				periodic, err := timer.ScheduleAtFixedRate(TaskFunc(func(*Timeout) {
					runs = append(runs, time.Since(began))
				}), time.Second, time.Second)
				require.NoError(t, err)
				schedule(t, timer, 1500*time.Millisecond, func(*Timeout) { time.Sleep(3 * time.Second) }) // until 4.5 s
				time.Sleep(6500 * time.Millisecond)
				synctest.Wait()
				require.True(t, periodic.Cancel())
				s, ms := time.Second, time.Millisecond
				want := []time.Duration{s, 4510 * ms, 4520 * ms, 4530 * ms, 5 * s, 6 * s}
				if policy == DropMissed { // those of 2 s and 3 s
					want = []time.Duration{s, 4520 * ms, 5 * s, 6 * s}
				}
				for i, at := range runs { // one per tick, so the first may still be in the tick of the stall's end
					require.LessOrEqual(t, (at - want[min(i, len(want)-1)]).Abs(), 20*ms, "%v", runs)
				}
				require.Len(t, runs, len(want), "the grid is caught up with, one run after the other")
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

// slowCancelTask runs until it is told.
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
			t.Fatal("a periodic one that nobody has cancelled can be cancelled")
		}
	}
	require.Zero(t, timer.Pending())
}

func TestWhatWaitsInAnExecutorIsPending(t *testing.T) {
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
				require.Equal(t, uint64(5), s.Missed, "due 10 to 50 s, looked at after 61 s; the sixth is a second late")
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

// logged collects what a Logger gets. Safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestAForgottenTimerIsReportedAndItsGoroutineEnds(t *testing.T) {
	var log logged
	func() {
		timer, err := NewTimer(TimerConfig{DetectLeaks: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.NoError(t, timer.Start())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return strings.Contains(log.String(), "without Stop")
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, log.String(), "timer_test.go", "where it was made")
	// That the goroutine ends is checked by goleak after all tests.
}

func TestAForgottenTimerDoesAllThatIsPendingFirst(t *testing.T) {
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
	require.Eventually(t, func() bool { return runs.Load() > 5 }, 10*time.Second, time.Millisecond, "it goes on while it is pending")
	require.True(t, timeout.Cancel())
	<-c.done
	require.ErrorIs(t, second(timeout.Timer().NewTimeout(TaskFunc(nothing), 0)), ErrStopped, "nobody would run it")
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

func TestManyLiveTimersAreWarnedOfOnce(t *testing.T) {
	liveWarned.Store(false)
	var log logged
	for range 2 * liveLimit {
		newTestTimer(t, TimerConfig{Slots: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	}
	require.Equal(t, 1, strings.Count(log.String(), "share it"))
}

func TestNewTimeoutAllocatesOnce(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	var task Task = TaskFunc(nothing)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		timeout, err := timer.NewTimeout(task, time.Hour)
		if err != nil || !timeout.Reset(2*time.Hour) || !timeout.Cancel() {
			t.Fatal("not pending")
		}
	}), 1.0)
}

func TestPool(t *testing.T) {
	_, err := NewPool(0, 1)
	require.Error(t, err)
	pool, err := NewPool(1, 1)
	require.NoError(t, err)
	began, hold, ran := make(chan bool), make(chan bool), make(chan bool, 1)
	require.NoError(t, pool.Execute(func() { began <- true; <-hold }))
	<-began
	require.NoError(t, pool.Execute(func() { ran <- true }))
	require.ErrorIs(t, pool.Execute(func() {}), ErrPoolFull)
	close(hold)
	pool.Close()
	require.True(t, <-ran, "what waited has run")
	require.ErrorIs(t, pool.Execute(func() {}), ErrPoolClosed)
	pool.Close()
}
