package timer

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"

	"github.com/stretchr/testify/require"
)

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
		n := timer.Pending()
		require.False(t, n < 0 || n > limit, "%d are pending", n)
	}
	over.Store(true)
	all.Wait()
	require.Eventually(t, func() bool { return timer.Pending() == 0 }, 10*time.Second, time.Millisecond)
	for range limit {
		add(t, timer, time.Hour, nothing)
	}
}

// TestARefusedResetIsLogged has the limit reached by a periodic task.
func TestARefusedResetIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncbuf.Buffer
		timer := newTestTimer(t, Config{MaxPending: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		first := add(t, timer, time.Second, nothing)
		time.Sleep(2 * time.Second)
		_, err := timer.Every(time.Second, nothing)
		require.NoError(t, err, "a task that has run is not pending")
		require.False(t, first.Reset(0))
		require.Contains(t, log.String(), "a timeout was not reset")
	})
}
