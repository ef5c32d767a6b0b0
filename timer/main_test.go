package timer

import (
	"log/slog"
	"testing"

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
