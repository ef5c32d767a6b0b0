package idle

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestALoweredLimitCountsNoLateness lowers limits below the silence of connections. Their deadlines
// have then passed long ago, but the Reaper could not know them.
func TestALoweredLimitCountsNoLateness(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Reaper) error{
		"update": func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: limitOf})) },
		"age":    func(r *Reaper) error { return r.Update(to(Config{ReadTimeout: time.Minute, MaxAge: limitOf})) },
		"scale":  func(r *Reaper) error { return r.ScaleTimeouts(1, limitOf) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, Config{ReadTimeout: time.Minute}, nil)
			dial(t, s.addr)
			time.Sleep(5 * limitOf)
			began := time.Now()
			require.NoError(t, change(s.reaper))
			s.reason(t, 0)
			took := time.Since(began)
			eventually(t, "the lateness is counted", func() bool { return s.reaper.Stats().Lateness.Count == 1 })
			require.LessOrEqual(t, s.reaper.Stats().Lateness.Max, took)
		})
	}
}

func TestAWarningIsLoggedOnceASecond(t *testing.T) {
	var out bytes.Buffer
	hand := &handClock{at: time.Second}
	cfg, err := Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))}.check(0)
	require.NoError(t, err)
	r := newReaper(&sink{}, cfg, hand.elapsed, realKernel)
	for range 5 {
		r.warn(&r.warnings.closing, "closing a connection", "reason", ReadIdle)
		r.warn(&r.warnings.keepalive, "setting keepalive")
	}
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="closing a connection" reason="read idle"`), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="setting keepalive"`))
	hand.at += 2 * time.Second
	r.warn(&r.warnings.closing, "closing a connection")
	require.Equal(t, 2, strings.Count(out.String(), "closing a connection"))
}
