package idle

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"

	"github.com/idlewheel/idlewheel/reap"
)

// flushLog waits until the records of a Reaper are written.
func flushLog(r *Reaper) { logging.Of(r.Config().Logger).Flush() }

func TestAWarningIsLoggedOnceASecond(t *testing.T) {
	var out syncbuf.Buffer
	hand := &handClock{at: mono.Time(time.Second)}
	own := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	cfg, err := own.check(0, nil)
	require.NoError(t, err)
	r := newReaper(&sink{}, cfg, hand.elapsed, realKernel)
	for range 5 {
		r.watch.Warn(&r.warnings.closing, "closing a connection", "reason", reap.ReadIdle)
		r.watch.Warn(&r.warnings.keepalive, "setting keepalive")
	}
	flushLog(r)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="closing a connection" reason="read idle"`), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="setting keepalive"`))
	hand.at = hand.at.Add(2 * time.Second)
	r.watch.Warn(&r.warnings.closing, "closing a connection")
	flushLog(r)
	require.Equal(t, 2, strings.Count(out.String(), "closing a connection"))
}

// TestALoggerThatBlocksBlocksNoEventLoop reaps connections while the reader of the log is stalled.
func TestALoggerThatBlocksBlocksNoEventLoop(t *testing.T) {
	unread, stalled := io.Pipe()
	log := slog.New(slog.NewTextHandler(stalled, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, Logger: log})
	s.open(3)
	s.pass(t, 2*time.Second)
	require.EqualValues(t, 3, s.Stats().Reaped[reap.ReadIdle])
	require.NoError(t, s.Update(to(Config{ReadTimeout: time.Hour, Logger: log})))
	require.NoError(t, unread.Close())
	flushLog(s.Reaper)
}
