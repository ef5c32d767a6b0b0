package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSinceWhenEventsShouldHaveBeenHandled has waits that begin 10 ms after the start of the loop.
// All events until 3 ms were known before.
func TestSinceWhenEventsShouldHaveBeenHandled(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		until, length time.Duration // of the wait
		full          bool

		certain, handling, clear time.Duration
	}{
		"events waited already":               {60 * ms, 20 * time.Microsecond, false, 3 * ms, 3 * ms, 10*ms + 20*time.Microsecond},
		"there may be more of them":           {60 * ms, 20 * time.Microsecond, true, 3 * ms, 3 * ms, 3 * ms},
		"an event ends the wait":              {60 * ms, 30 * ms, false, 40 * ms, 40 * ms, 40 * ms},
		"the kernel ends it a little late":    {60 * ms, 51 * ms, false, 61 * ms, 61 * ms, 61 * ms},
		"the process was stopped":             {60 * ms, 100 * ms, false, 10 * ms, 60 * ms, 110 * ms},
		"it was stopped when it was to wait":  {10 * ms, 100 * ms, false, 10 * ms, 10 * ms, 110 * ms},
		"something was due before the wait":   {5 * ms, 100 * ms, true, 10 * ms, 10 * ms, 3 * ms},
		"it was due before, and nothing came": {5 * ms, 60 * time.Microsecond, false, 10*ms + 60*time.Microsecond, 10*ms + 60*time.Microsecond, 10*ms + 60*time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			m := moments{clear: int64(3 * ms)}
			m.woke(int64(10*ms+tt.length), int64(10*ms), int64(tt.until), tt.full)
			require.Equal(t, tt.certain, time.Duration(m.certain), "certain")
			require.Equal(t, tt.handling, time.Duration(m.handling), "handling")
			require.Equal(t, tt.clear, time.Duration(m.clear), "clear")
		})
	}
}
