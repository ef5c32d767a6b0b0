package timer

import (
	"fmt"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/needs"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

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
