package timer

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nothing() {}

// newTestTimer returns a Timer that logs nothing, unless cfg has a Logger, and that ends with the
// test.
func newTestTimer(t testing.TB, cfg Config) *Timer {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	timer, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := timer.Shutdown(t.Context()) // the context is done: no task may be running
		require.NoError(t, err)
	})
	return timer
}

// spawn is an executor with a goroutine for each task.
func spawn(run func()) error { go run(); return nil }

// add calls AfterFunc.
func add(t testing.TB, timer *Timer, d time.Duration, task func()) *Timeout {
	t.Helper()
	timeout, err := timer.AfterFunc(d, task)
	require.NoError(t, err)
	return timeout
}

// A diary records the times of events.
type diary struct {
	began time.Time
	mu    sync.Mutex
	times []time.Duration
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) write() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times = append(d.times, time.Since(d.began))
}

func (d *diary) read() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.times
}
