package timer

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// idle calls AfterIdle.
func idle(t testing.TB, timer *Timer, d time.Duration, task func()) *Idle {
	t.Helper()
	i, err := timer.AfterIdle(d, task)
	require.NoError(t, err)
	return i
}

// TestAnIdleEndsOneLimitAfterItsLastTouch has idles with limits of one tick to two minutes: longer
// than the clock remembers. Touches are random, and a part of them is stopped.
func TestAnIdleEndsOneLimitAfterItsLastTouch(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tick = 10 * time.Millisecond
				timer := newTestTimer(t, Config{Tick: tick, Executor: executor})
				rng := rand.New(rand.NewPCG(1125, 0))
				for range 200 {
					limit := tick + time.Duration(rng.Int64N(int64([]time.Duration{time.Second, 2 * time.Minute}[rng.IntN(2)])))
					pause, touches, stops := 1+rng.Int64N(int64(limit-1)), rng.IntN(20), rng.IntN(4) == 0
					go func() {
						last, ended := time.Now(), make(chan time.Time, 1)
						i := idle(t, timer, limit, func() { ended <- time.Now() })
						for range touches {
							time.Sleep(time.Duration(pause))
							last = time.Now()
							i.Touch()
						}
						if stops {
							if !i.Stop() || i.Stop() || timer.Pending() < 0 {
								t.Error("Stop reports whether it has prevented the run")
							}
							time.Sleep(2 * limit)
							i.Touch()
							if len(ended) > 0 {
								t.Error("a task has run after Stop")
							}
							return
						}
						if late := (<-ended).Sub(last) - limit; late < 0 || late > 2*tick {
							t.Errorf("%v late after a limit of %v", late, limit)
						}
						i.Touch()
						if i.Stop() {
							t.Error("Stop is true after the run")
						}
					}()
					time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Zero(t, timer.Pending())
			})
		})
	}
}

// TestAStopOfTheTimerEndsNoIdle blocks the goroutine of the Timer, as a stop of the process does.
// The time does not count, whether the Idle was touched meanwhile or not. Later idles are in time.
func TestAStopOfTheTimerEndsNoIdle(t *testing.T) {
	const stop = 5003 * time.Millisecond
	for name, touches := range map[string]bool{"touched": true, "not touched": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				timer := newTestTimer(t, Config{})
				ends := newDiary()
				i := idleBeforeLook(t, timer, time.Second, ends.write, func(*Idle) { time.Sleep(stop) })
				time.Sleep(500 * time.Millisecond)
				i.Touch() // so a look follows after half a second
				time.Sleep(4 * time.Second)
				want := 1500*time.Millisecond + stop
				if touches {
					i.Touch()
					want = 2*time.Second + stop // the end of the stop counts
				}
				time.Sleep(10 * time.Second)
				require.Len(t, ends.read(), 1)
				require.InDelta(t, want, ends.read()[0], float64(30*time.Millisecond))
				for n := range time.Duration(20) {
					later := newDiary()
					idle(t, timer, time.Second+n*time.Millisecond, later.write)
					time.Sleep(3*time.Second + n*7*time.Millisecond)
					require.LessOrEqual(t, later.read()[0]-n*time.Millisecond, 1020*time.Millisecond)
				}
			})
		})
	}
}

// idleBeforeLook returns an Idle, and calls a function on the goroutine of the Timer just before
// the first look at the Idle.
func idleBeforeLook(t testing.TB, timer *Timer, limit time.Duration, task func(), before func(*Idle)) (i *Idle) {
	shards := timer.core.shards
	use := func(s *shard) {
		timer.core.near = sync.Pool{New: func() any { return s }}
	}
	use(shards[len(shards)-1])
	i = idle(t, timer, limit, task)
	use(shards[0])
	add(t, timer, min(limit, i.clock.Memory()), func() { before(i) })
	return i
}

// TestTheClockOfIdlesMovesInEachTick has a real clock, with which wake-ups are a little late.
func TestTheClockOfIdlesMovesInEachTick(t *testing.T) {
	const ticks = 20
	timer := newTestTimer(t, Config{})
	i := idle(t, timer, time.Hour, nothing)
	defer i.Stop()
	for range 100 { // on a busy machine one of them is enough
		began := i.clock.Stamp()
		time.Sleep(ticks * i.clock.Tick())
		if i.clock.Stamp()-began >= ticks*3/4 {
			return
		}
	}
	t.Error("the clock skips ticks")
}

// TestSlowTasksKeepNoIdle has tasks that occupy the goroutine of the Timer for most of the time, or
// for too short times to count.
func TestSlowTasksKeepNoIdle(t *testing.T) {
	for _, tc := range []struct{ every, takes, limit, least, most time.Duration }{
		{100 * time.Millisecond, 25 * time.Millisecond, time.Second, time.Second, 1050 * time.Millisecond},
		{time.Second, 990 * time.Millisecond, 100 * time.Millisecond, 24 * 100 * time.Millisecond, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			timer := newTestTimer(t, Config{})
			task, err := timer.Every(tc.every, func() { time.Sleep(tc.takes) })
			require.NoError(t, err)
			time.Sleep(tc.every - 5*time.Millisecond)
			ends := newDiary()
			idle(t, timer, tc.limit, ends.write)
			time.Sleep(time.Minute)
			task.Stop()
			time.Sleep(time.Second)
			require.Len(t, ends.read(), 1)
			require.GreaterOrEqual(t, ends.read()[0], tc.least)
			require.LessOrEqual(t, ends.read()[0], tc.most)
		})
	}
}

// TestALongLimitIsNeverOver has a touch between a move of the clock and a look.
func TestALongLimitIsNeverOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{})
		ends := newDiary()
		i := idleBeforeLook(t, timer, math.MaxInt64, ends.write, func(i *Idle) { time.Sleep(time.Millisecond); i.Touch() })
		time.Sleep(time.Minute)
		require.Empty(t, ends.read())
		require.True(t, i.Stop())
		time.Sleep(time.Second)
		require.Equal(t, int64(never), timer.core.wakeAt.Load(), "nothing is pending")
	})
}

// TestManyIdlesEndTogether has more of them than one lock takes, with a limit for late runs.
func TestManyIdlesEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, Config{SkipAfter: time.Second})
		ends := newDiary()
		for range 3 * batch {
			idle(t, timer, time.Second, ends.write)
		}
		time.Sleep(1020 * time.Millisecond)
		synctest.Wait()
		require.Len(t, ends.read(), 3*batch)
	})
}

func TestAfterIdleErrors(t *testing.T) {
	timer := newTestTimer(t, Config{MaxPending: 1})
	_, err := timer.AfterIdle(time.Second, nil)
	require.ErrorIs(t, err, errNilTask)
	_, err = timer.AfterIdle(time.Millisecond, nothing)
	require.ErrorContains(t, err, "the idle time is 1ms, must be at least the tick of 10ms")
	first := idle(t, timer, time.Hour, nothing)
	require.Zero(t, testing.AllocsPerRun(1000, first.Touch))
	_, err = timer.AfterIdle(time.Hour, nothing)
	require.ErrorIs(t, err, ErrTooManyPending)
	require.True(t, first.Stop())
	last := idle(t, timer, time.Hour, nothing)
	left, err := timer.Shutdown(t.Context())
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.False(t, last.Stop())
	require.Zero(t, timer.Pending())
	_, err = timer.AfterIdle(time.Hour, nothing)
	require.ErrorIs(t, err, ErrShutdown)
}

// TestTouchesRaceWithEnds is for the race detector: goroutines touch, stop and replace idles that
// end at the same time. Each task runs once, or its Stop is true.
func TestTouchesRaceWithEnds(t *testing.T) {
	timer := newTestTimer(t, Config{Tick: time.Millisecond, Executor: spawn})
	var made, ended, stopped atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 150 {
				made.Add(1)
				i := idle(t, timer, time.Millisecond*time.Duration(1+rand.IntN(3)), func() { ended.Add(1) })
				for range rand.IntN(20) {
					i.Touch()
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				}
				if rand.IntN(2) == 0 && i.Stop() {
					stopped.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return timer.Pending() == 0 && ended.Load()+stopped.Load() == made.Load() },
		30*time.Second, time.Millisecond)
}
