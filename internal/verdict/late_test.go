package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

func TestLateCountsFromTheDeadlineOrALaterChange(t *testing.T) {
	limit := func(read time.Duration) *Limits { return &Limits{Tick: second / 10, Read: read, Horizon: time.Hour} }
	f := &Facts{Opened: At(100 * second), Heard: At(100 * second), Wrote: At(100 * second)}
	for _, tc := range []struct {
		name       string
		was, is    time.Duration
		since, now mono.Time
		want       time.Duration
	}{
		{"no change", 0, 10 * second, 0, 115 * second, 5 * second},
		{"shorter while it was not due", 60 * second, 10 * second, 150 * second, 151 * second, 1 * second},
		{"shorter before its time", 60 * second, 10 * second, 105 * second, 111 * second, 1 * second},
		{"longer", 10 * second, 60 * second, 105 * second, 161 * second, 1 * second},
		{"shorter when it was late already", 20 * second, 10 * second, 130 * second, 131 * second, 11 * second},
		{"no limit before", 0, 10 * second, 130 * second, 131 * second, 1 * second},
		{"longer when it was late already", 5 * second, 10 * second, 130 * second, 131 * second, 21 * second},
	} {
		lim := limit(tc.is)
		if tc.since != 0 {
			lim.Previous, lim.Since = limit(tc.was), tc.since
		}
		v := lim.Judge(f, &Away{}, tc.now)
		require.Equal(t, reap.ReadIdle, v.Reason, tc.name)
		require.Equal(t, tc.want, lim.Report(v, f, tc.now).Late, tc.name)
	}
	lim, f := limit(10*second), &Facts{Opened: At(99 * second), Heard: Span{99 * second, 100 * second}, HeardAt: 99 * second}
	lim.Previous, lim.Since = limit(0), 130*second
	v := lim.Judge(f, &Away{}, 131*second)
	require.Equal(t, time.Second, lim.Report(v, f, 131*second).Late, "whatever the kernel knows of the last byte")
}
