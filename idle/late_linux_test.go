package idle

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhoIsIdleForLongAlreadyIsNotLate lowers limits below the silence of connections: their deadlines have passed long ago then, but
// nobody could know.
func TestWhoIsIdleForLongAlreadyIsNotLate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Reaper) error{
		"update":  func(r *Reaper) error { return r.Update(Config{ReadTimeout: limitOf}) },
		"age":     func(r *Reaper) error { return r.Update(Config{ReadTimeout: time.Minute, MaxAge: limitOf}) },
		"squeeze": func(r *Reaper) error { return r.Squeeze(1, limitOf) },
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
			eventually(t, "it is counted", func() bool { return s.reaper.Stats().Lateness.Count == 1 })
			require.LessOrEqual(t, s.reaper.Stats().Lateness.Max, took)
		})
	}
}

func TestLatenessIsFromTheDeadlineOrFromTheChangeThatHasBroughtItForward(t *testing.T) {
	const s = time.Second
	limit := func(read time.Duration) *limits {
		return newLimits(&Config{Tick: s / 10}, Timeouts{Read: read}, time.Hour)
	}
	f := &life{opened: at(100 * s), heard: at(100 * s), wrote: at(100 * s)}
	for _, tc := range []struct {
		name              string
		was, is           time.Duration
		since, now, wants time.Duration
	}{
		{"no change", 0, 10 * s, 0, 115 * s, 5 * s},
		{"shorter while it was not due", 60 * s, 10 * s, 150 * s, 151 * s, 1 * s},
		{"shorter before its time", 60 * s, 10 * s, 105 * s, 111 * s, 1 * s},
		{"longer", 10 * s, 60 * s, 105 * s, 161 * s, 1 * s},
		{"shorter when it was late already", 20 * s, 10 * s, 130 * s, 131 * s, 11 * s},
	} {
		lim := limit(tc.is)
		if tc.was != 0 {
			lim.before, lim.since = limit(tc.was), tc.since
		}
		v := lim.judge(f, tc.now)
		require.Equal(t, ReadIdle, v.kind, tc.name)
		require.Equal(t, tc.wants, lim.late(v, f, tc.now), tc.name)
	}
}

func TestAWarningIsLoggedOnceASecond(t *testing.T) {
	var out bytes.Buffer
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	for range 5 {
		r.warn(&r.warnings.closing, "closing a connection", "reason", ReadIdle)
		r.warn(&r.warnings.keepalive, "setting keepalive")
	}
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="closing a connection" reason="read idle"`), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="setting keepalive"`))
	r.clock.start = r.clock.start.Add(-2 * time.Second)
	r.warn(&r.warnings.closing, "closing a connection")
	require.Equal(t, 2, strings.Count(out.String(), "closing a connection"))
}
