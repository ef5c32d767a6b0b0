package timer

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"

	"github.com/stretchr/testify/require"
)

// Quick tasks run one after the other for longer than SlowAfter, and then one blocks.
func TestOnlyTheTaskThatBlocksIsLogged(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var log syncbuf.Buffer
		timer := newTestTimer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		timer.core.shards = timer.core.shards[:1] // so that all tasks are dispatched together
		tasks := 0
		for range 6 {
			add(t, timer, 1000*ms, func() {
				if tasks++; tasks < 6 {
					time.Sleep(300 * ms)
				} else {
					time.Sleep(1400 * ms) // from 2.5 s on
				}
			})
		}
		time.Sleep(3000*ms - 1)
		require.Empty(t, log.String())
		time.Sleep(600 * ms)
		require.Equal(t, 1, strings.Count(log.String(), "blocks the goroutine"))
		time.Sleep(600 * ms)
	})
}

func TestADispatchThatHasEndedIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncbuf.Buffer
		timer := newTestTimer(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		add(t, timer, time.Second, nothing)
		time.Sleep(time.Minute)
		timer.core.watchdog.look() // had begun before the end
		require.Empty(t, log.String())
		require.False(t, timer.core.watchdog.alarm.Stop(), "it does not look again")
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
