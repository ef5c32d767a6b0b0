package timer

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idlewheel/idlewheel/internal/syncbuf"

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
