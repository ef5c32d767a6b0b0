package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/slogtest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A stalled is a Writer that blocks until open is closed, and then writes to a buffer.
type stalled struct {
	syncbuf.Buffer
	open  chan struct{}
	calls atomic.Int64 // of Write
}

func (s *stalled) Write(p []byte) (int, error) {
	s.calls.Add(1)
	<-s.open
	return s.Buffer.Write(p)
}

func newStalled() *stalled { return &stalled{open: make(chan struct{})} }

// plain returns a Logger of lines without a time.
func plain(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// TestTheHandlerKeepsTheRulesOfSlog runs the tests of package slogtest.
func TestTheHandlerKeepsTheRulesOfSlog(t *testing.T) {
	var out syncbuf.Buffer
	var log *slog.Logger
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out = syncbuf.Buffer{}
		log = Wrap(slog.New(slog.NewJSONHandler(&out, nil)))
		return log.Handler()
	}, func(t *testing.T) map[string]any {
		Of(log).Flush()
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(out.String()), &record))
		return record
	})
}

func TestRecordsKeepTheirOrder(t *testing.T) {
	var out syncbuf.Buffer
	log := Wrap(plain(&out))
	other := log.With("a", 1).WithGroup("g")
	var want strings.Builder
	for i := range 500 {
		log.Info("one", "i", i)
		other.Debug("two", "i", i)
		fmt.Fprintf(&want, "level=INFO msg=one i=%d\nlevel=DEBUG msg=two a=1 g.i=%d\n", i, i)
	}
	Of(other).Flush()
	require.Equal(t, want.String(), out.String())
	require.Zero(t, Of(log).Dropped())
}

func TestAStalledReaderBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newStalled()
		log := Wrap(plain(out))
		log.Info("first")
		synctest.Wait() // it is being written
		for i := range capacity + 5 {
			log.Info("waits", "i", i)
		}
		require.EqualValues(t, 5, Of(log).Dropped())

		began := time.Now()
		Of(log).Flush()
		require.Equal(t, flushTimeout, time.Since(began), "Flush does not wait for ever")

		close(out.open)
		synctest.Wait()
		lines := strings.SplitAfter(out.String(), "\n")
		require.Len(t, lines, capacity+3)
		require.Equal(t, fmt.Sprintf("level=INFO msg=waits i=%d\n", capacity-1), lines[capacity])
		require.Equal(t, "level=WARN msg=\"log records were dropped: the reader of the log is too slow\" number=5\n", lines[capacity+1],
			"although no record follows")
	})
}

// TestTheNextRecordFollowsTheNumberOfDroppedOnes drops records twice.
func TestTheNextRecordFollowsTheNumberOfDroppedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newStalled()
		w := NewWriter(writerFunc(func(p []byte) (int, error) {
			n, err := out.Write(p)
			if out.calls.Load() == 1 { // one place is free now
				out.open = make(chan struct{})
			}
			return n, err
		}))
		line := func(text string) { fmt.Fprintln(w, text) }
		line("first")
		synctest.Wait()
		for range capacity + 3 {
			line("waits")
		}
		close(out.open)
		synctest.Wait() // the second write blocks
		line("after 3")
		line("dropped")
		close(out.open)
		synctest.Wait()
		require.Equal(t, "first\n"+strings.Repeat("waits\n", capacity)+"3 lines were dropped\nafter 3\n1 lines were dropped\n", out.String())
		require.EqualValues(t, 4, w.Dropped())
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestAReaderThatIsGoneIsCounted(t *testing.T) {
	log := Wrap(plain(writerFunc(func([]byte) (int, error) { return 0, errors.New("broken pipe") })))
	log.Info("lost")
	log.Debug("lost as well")
	Of(log).Flush()
	require.EqualValues(t, 2, Of(log).Dropped())

	log = Wrap(plain(writerFunc(func([]byte) (int, error) { panic("a handler with a fault") })))
	log.Info("lost")
	Of(log).Flush()
	require.EqualValues(t, 1, Of(log).Dropped())

	log = Wrap(plain(writerFunc(func([]byte) (int, error) { runtime.Goexit(); return 0, nil })))
	log.Info("lost")
	log.Info("the queue goes on")
	Of(log).Flush()
	require.EqualValues(t, 2, Of(log).Dropped())
}

// A counter is a LogValuer with state that changes.
type counter struct{ n int }

func (c *counter) LogValue() slog.Value { return slog.IntValue(c.n) }

func TestValuesAreThoseOfTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newStalled()
		log := Wrap(plain(out))
		c := &counter{1}
		group := slog.Group("g", "inner", c, slog.Group("h", "deep", c))
		log.Info("now", "c", c, group)
		c.n = 2
		log.Info("then", "c", c, group)
		c.n = 3
		close(out.open)
		synctest.Wait()
		require.Equal(t, "level=INFO msg=now c=1 g.inner=1 g.h.deep=1\nlevel=INFO msg=then c=2 g.inner=2 g.h.deep=2\n", out.String())
	})
}

// TestTheLevelOfTheLoggerHolds checks that a dropped record is not told below the level either.
func TestTheLevelOfTheLoggerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newStalled()
		log := Wrap(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelError})))
		require.False(t, log.Enabled(context.Background(), slog.LevelWarn))
		for range capacity + 9 {
			log.Error("error")
			log.Warn("warning")
		}
		close(out.open)
		synctest.Wait()
		require.NotContains(t, out.String(), "WARN")
	})
}

func TestWrapTwiceIsWrapOnce(t *testing.T) {
	log := Wrap(plain(io.Discard))
	require.Same(t, log, Wrap(log))
	with := log.With("a", 1).WithGroup("g")
	require.Same(t, with, Wrap(with))
	require.Same(t, Of(log), Of(with))
	require.Nil(t, Of(plain(io.Discard)))
}

func TestManyGoroutinesLog(t *testing.T) {
	var out bytes.Buffer // its mutex is that of the queue: one goroutine writes
	log := Wrap(slog.New(slog.NewTextHandler(&out, nil)))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				log.Info("line")
			}
		})
	}
	all.Wait()
	Of(log).Flush()
	require.Equal(t, 800, strings.Count(out.String(), "\n"))
	require.Zero(t, Of(log).Dropped())
}

// TestWithoutALoggerWarningsAreLogged: a program that sets no Logger still learns what is wrong.
func TestWithoutALoggerWarningsAreLogged(t *testing.T) {
	var out syncbuf.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(plain(&out))
	log := Wrap(nil)
	for _, l := range []*slog.Logger{log, log.With("a", 1), log.WithGroup("g").With("b", 2)} {
		l.Info("not asked for")
		l.Warn("warning")
		l.Error("fault")
	}
	Of(log).Flush()
	require.Equal(t, "level=WARN msg=warning\nlevel=ERROR msg=fault\nlevel=WARN msg=warning a=1\nlevel=ERROR msg=fault a=1\n"+
		"level=WARN msg=warning g.b=2\nlevel=ERROR msg=fault g.b=2\n", out.String())
}
