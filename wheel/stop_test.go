package wheel

import (
	"context"
	"errors"
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

func TestStopReturnsExactlyThePendingTimeouts(t *testing.T) {
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

func TestStopFromATaskIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		errs := make(chan error, 1)
		schedule(t, timer, 0, func(timeout *Timeout) { errs <- second(timeout.Timer().Stop()) })
		require.ErrorIs(t, <-errs, ErrStopInTask)
		fired := make(chan bool, 1)
		schedule(t, timer, 0, func(*Timeout) { fired <- true })
		require.True(t, <-fired, "the timer continues")
	})
}

func TestStopContextDoesNotWaitForeverForATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTestTimer(t, TimerConfig{})
		blocked := make(chan bool)
		var ran atomic.Pointer[Timeout]
		block := func(timeout *Timeout) {
			assert.True(t, ran.CompareAndSwap(nil, timeout), "one of the two must not run after Stop")
			<-blocked
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
		close(blocked)
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
		stopReading := make(chan bool)
		var readers sync.WaitGroup
		readers.Go(func() { // reads the inboxes, also after Stop
			for {
				select {
				case <-stopReading:
					return
				default:
					timer.Pending()
				}
			}
		})
		left, err := timer.Stop()
		require.NoError(t, err)
		producers.Wait()
		close(stopReading)
		readers.Wait()
		require.Equal(t, int64(8000), refused.Load()+accepted.Load())
		require.Equal(t, accepted.Load(), ran.Load()+int64(len(left)))
		require.Zero(t, timer.Pending())
	}
}

// A Timeout that is made during Stop is refused by NewTimeout, also if another goroutine reads the
// inbox in between.
func TestATimeoutReadAfterStopIsRefused(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	require.NoError(t, second(timer.Stop()))
	s := timer.shards[0]
	late := &Timeout{task: TaskFunc(nothing), shard: s}
	late.word.Store(newWord(0, pending) | newBit)
	s.added.post(late) // accept has reached this point
	require.Zero(t, timer.Pending())
	require.True(t, isNew(late.word.Load()), "accept can refuse it")
	require.Zero(t, timer.Stats().Scheduled)
}

func TestNothingIsPendingAfterStop(t *testing.T) {
	for range 300 {
		timer, err := NewTimer(TimerConfig{Slots: 1})
		require.NoError(t, err)
		var all []*Timeout
		for range 200 {
			all = append(all, schedule(t, timer, time.Hour, nothing))
		}
		var cancelling sync.WaitGroup
		cancelling.Go(func() {
			for _, timeout := range all {
				timeout.Cancel()
			}
		})
		_, err = timer.Stop()
		require.NoError(t, err)
		require.Zero(t, timer.Pending())
		require.Zero(t, timer.Stats().Pending)
		cancelling.Wait()
	}
}

func TestPendingIsNeverNegative(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{Tick: time.Microsecond, Executor: func(run func()) error { go run(); return nil }})
	var watching sync.WaitGroup
	var over atomic.Bool
	watching.Go(func() {
		for !over.Load() {
			if n := timer.Pending(); n < 0 {
				t.Errorf("%d pending", n)
				return
			}
		}
	})
	for range 5000 {
		done := make(chan bool)
		_, err := timer.ScheduleWithFixedDelay(TaskFunc(func(timeout *Timeout) { timeout.Cancel(); close(done) }), 0, time.Microsecond)
		require.NoError(t, err)
		<-done
	}
	over.Store(true)
	watching.Wait()
}

func TestStopWithAContextThatIsOverIsNoErrorIfNoTaskRuns(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		timer, err := NewTimer(TimerConfig{Slots: 1})
		require.NoError(t, err)
		schedule(t, timer, time.Hour, nothing)
		left, err := timer.StopContext(over)
		require.NoError(t, err)
		require.Len(t, left, 1)
		requireOver(t, timer)
	}
}

func TestStopWithNothingPendingWaitsForTheGoroutine(t *testing.T) {
	for range 100 {
		timer, err := NewTimer(TimerConfig{Slots: 1})
		require.NoError(t, err)
		require.NoError(t, timer.Start())
		for range 2 { // the second call waits as well
			_, err = timer.Stop()
			require.NoError(t, err)
			requireOver(t, timer)
		}
	}
}

func requireOver(t testing.TB, timer *Timer) {
	t.Helper()
	select {
	case <-timer.done:
	default:
		t.Fatal("Stop has returned before the goroutine of the Timer has ended")
	}
}

func TestARunThatMeetsStopFilesNothing(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	timeout := schedule(t, timer, time.Hour, nothing)
	require.Len(t, timeout.shard.close(), 1)
	require.False(t, timeout.shard.refile(timeout), "Stop finds it in place")
}

func TestATimerIsStartedByItsFirstTimeout(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{})
	require.False(t, timer.running.Load())
	schedule(t, timer, time.Hour, nothing)
	require.True(t, timer.running.Load())
}

func TestARefusedTimeoutTakesNoPlace(t *testing.T) {
	timer := newTestTimer(t, TimerConfig{MaxPending: 1})
	_, err := timer.Stop()
	require.NoError(t, err)
	for range 3 {
		require.ErrorIs(t, second(timer.NewTimeout(TaskFunc(nothing), 0)), ErrStopped)
	}
}

func TestATickOfANanosecondCanBeStopped(t *testing.T) {
	timer, err := NewTimer(TimerConfig{Tick: 1})
	require.NoError(t, err)
	schedule(t, timer, time.Hour, nothing)
	left, err := timer.Stop()
	require.NoError(t, err)
	require.Len(t, left, 1)
}
