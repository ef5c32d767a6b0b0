package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLateCountsFromTheDeadlineOrALaterChange(t *testing.T) {
	const s = time.Second
	limit := func(read time.Duration) *Limits { return &Limits{Tick: s / 10, Read: read, Horizon: time.Hour} }
	f := &Facts{Opened: At(100 * s), Heard: At(100 * s), Wrote: At(100 * s)}
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
			lim.Previous, lim.Since = limit(tc.was), tc.since
		}
		v := lim.Judge(f, &Away{}, tc.now)
		require.Equal(t, ReadIdle, v.Reason, tc.name)
		require.Equal(t, tc.wants, lim.late(v, f, tc.now), tc.name)
	}
}
