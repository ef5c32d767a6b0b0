package timer

import (
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// TestRefusedTasksGoOnInTurn has far more tasks than the executor can take at once. The time that
// the executor needs for all is ideal. One in eight tasks is stopped or reset meanwhile.
func TestRefusedTasksGoOnInTurn(t *testing.T) {
	const tasks, places, takes = 1000, 4, time.Millisecond
	for name, test := range map[string]struct{ first, apart, ideal time.Duration }{
		"all together":           {takes, 0, tasks / places * takes},
		"a long one among them":  {time.Minute, 0, tasks / (places - 1) * takes},
		"more than the pool can": {takes, takes / 5, tasks / places * takes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool := make(chan struct{}, places)
				timer := newTestTimer(t, Config{Executor: func(run func()) error {
					select {
					case pool <- struct{}{}:
					default:
						return errors.New("full")
					}
					return spawn(func() {
						began := time.Now()
						run()
						assert.Less(t, time.Since(began), retryAfter+test.first, "the pool is free for others")
						<-pool
					})
				}})
				begun := time.Now()
				var ran, last atomic.Int64
				for n := range tasks {
					length := takes
					if n == 0 {
						length = test.first
					}
					due := time.Second + time.Duration(n)*test.apart
					timeout := add(t, timer, due, func() {
						ran.Add(1)
						last.Store(int64(time.Since(begun) - time.Second))
						time.Sleep(length)
					})
					if n%8 == 7 {
						add(t, timer, due+test.ideal/2, func() {
							if n%16 == 7 {
								timeout.Stop()
							} else {
								timeout.Reset(time.Minute)
							}
						})
					}
				}
				time.Sleep(time.Second + 2*test.ideal)
				assert.Less(t, time.Duration(last.Load()), test.ideal*7/4)
				assert.Greater(t, ran.Load(), int64(tasks*7/8))
				time.Sleep(2 * time.Minute)
				require.Zero(t, timer.Pending())
				require.Equal(t, timer.Stats().Runs+timer.Stats().Stopped, timer.Stats().Scheduled)
			})
		})
	}
}

func TestARefusedTaskThatIsTooLateIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := make(chan struct{}, 1)
		timer := newTestTimer(t, Config{SkipAfter: retryAfter / 4, Executor: func(run func()) error {
			select {
			case pool <- struct{}{}:
				return spawn(func() { run(); <-pool })
			default:
				return errors.New("full")
			}
		}})
		var ran atomic.Int32
		for range 2 {
			add(t, timer, time.Second, func() { ran.Add(1); time.Sleep(retryAfter / 2) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, ran.Load())
	})
}

// TestRefusalsAreBounded has an executor that refuses all tasks, until they are stopped.
func TestRefusalsAreBounded(t *testing.T) {
	inBubble(t, Config{Executor: func(func()) error { return errors.New("closed") }}, func(t *testing.T, timer *Timer) {
		add(t, timer, time.Hour, func() {}) // keeps the driver
		var timeouts []*Timeout
		for range 10 {
			timeouts = append(timeouts, add(t, timer, time.Second, func() {}))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, len(timer.core.usual.refused), 2*len(timeouts))
		for _, timeout := range timeouts {
			require.True(t, timeout.Stop())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, timer.core.usual.refused, "their tasks are garbage")
	})
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
