package timer

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestStopAndResetReportLikeTimeTimer(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, timer *Timer) {
		runs := newDiary()
		timeout := add(t, timer, time.Second, runs.write)
		require.True(t, timeout.Reset(2*time.Second))
		require.True(t, timeout.Stop())
		require.False(t, timeout.Stop())
		require.False(t, timeout.Reset(3*time.Second), "it was stopped")
		time.Sleep(4 * time.Second)
		require.False(t, timeout.Stop(), "it has run")
		require.False(t, timeout.Reset(time.Second), "it has run")
		time.Sleep(2 * time.Second)
		require.Equal(t, []time.Duration{3 * time.Second, 5 * time.Second}, runs.read())
	})
}

// A task resets its own Timeout, as a retry does.
func TestResetWithinTheTask(t *testing.T) {
	for name, executor := range map[string]func(func()) error{"inline": nil, "executor": spawn} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{Executor: executor}, func(t *testing.T, timer *Timer) {
				runs := newDiary()
				handle := make(chan *Timeout, 1)
				handle <- add(t, timer, time.Second, func() {
					runs.write()
					timeout := <-handle
					handle <- timeout
					assert.False(t, len(runs.read()) < 3 && timeout.Reset(time.Second), "Reset is true for a running one")
					assert.False(t, timeout.Stop(), "Stop is true for a running one")
					if len(runs.read()) < 3 {
						timeout.Reset(time.Second)
					}
					time.Sleep(1500 * time.Millisecond) // ends after the deadline: the next run waits
				})
				time.Sleep(10 * time.Second)
				require.Equal(t, []time.Duration{time.Second, 2500 * time.Millisecond, 4 * time.Second}, runs.read())
				require.Zero(t, timer.Pending())
			})
		})
	}
}

func TestATimeoutInALogIsText(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, timer *Timer) {
		timeout := add(t, timer, 5*time.Second, nothing)
		var log syncbuf.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "timeout", timeout, "all", []*Timeout{timeout})
		const text = `"github.com/idlewheel/idlewheel/timer.nothing, due in 5s"`
		require.Contains(t, log.String(), `"timeout":`+text)
		require.Contains(t, log.String(), `"all":[`+text+`]`)
		timeout.Stop()
		require.Equal(t, "github.com/idlewheel/idlewheel/timer.nothing, not pending", fmt.Sprint(timeout))
		running := make(chan string)
		handle := make(chan *Timeout, 1)
		handle <- add(t, timer, 0, func() { running <- (<-handle).String() })
		require.Contains(t, <-running, ", running, not pending")
	})
}

func TestATimeoutIs48Bytes(t *testing.T) {
	needs.Bits64(t)
	require.EqualValues(t, 48, unsafe.Sizeof(Timeout{}), "the package comment says so, and 56 would take 64")
}

func TestOperationsDoNotAllocate(t *testing.T) {
	timer := newTestTimer(t, Config{MaxPending: 10})
	timeout := add(t, timer, time.Hour, nothing)
	d := time.Hour
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		d = 3*time.Hour - d
		timeout.Reset(d)
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() { timeout.Stop(); timeout.Reset(d) }))
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { add(t, timer, time.Hour, nothing).Stop() }), 1.0)
}
