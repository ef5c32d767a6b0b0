package wheel

import (
	"math"
	"math/rand/v2"
	"runtime"
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

// cancelTask counts its calls.
type cancelTask struct{ ran, cancelled atomic.Int32 }

func (c *cancelTask) Run(*Timeout)       { c.ran.Add(1) }
func (c *cancelTask) Cancelled(*Timeout) { c.cancelled.Add(1) }

func second[A any](_ A, err error) error { return err }

// Each Timeout is cancelled once, or runs once, or is returned by Stop once, while goroutines
// cancel and reset each other's.
func TestEachTimeoutEndsOnce(t *testing.T) {
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
			10*time.Second, time.Millisecond, "running tasks end")
	}
}

func TestProducersReadTheInboxes(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	const n = 100 * readAtOnce
	// In each of two inboxes; ten times what it is without -race.
	slack := int64(10 * readAtOnce * len(timer.shards))
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

func TestACancelledTaskIsReleased(t *testing.T) {
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

func TestACancelledTimeoutIsNotFiledAgain(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	timeout := schedule(t, timer, time.Hour, nothing)
	require.True(t, timeout.Cancel())
	require.True(t, timeout.shard.refile(timeout), "as a run does that has not seen the Cancel")
	require.Empty(t, timer.Slots())
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

func TestStringOfATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		require.Equal(t, "github.com/idlewheel/idlewheel/wheel.nothing, pending, due in 1m0s",
			schedule(t, timer, time.Minute, nothing).String())
		cancelled, err := timer.NewTimeout(&cancelTask{}, time.Minute)
		require.NoError(t, err)
		cancelled.Cancel()
		time.Sleep(time.Second)
		require.Equal(t, "*wheel.cancelTask, cancelled, due in 59s", cancelled.String())
	})
}
