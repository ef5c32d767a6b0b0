package idle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestACloseForAnotherReasonMissesNoHeartbeat closes connections while a ping may still be answered.
func TestACloseForAnotherReasonMissesNoHeartbeat(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg  Config
		want error
	}{
		"idle": {Config{ReadTimeout: limitOf}, ReadIdle},
		"old":  {Config{MaxAge: limitOf}, MaxAge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.cfg.Heartbeat = Heartbeat{Interval: limitOf / 4, Retry: time.Minute, Ping: pinging().Ping}
			s := newSite(t, tc.cfg, nil)
			began := time.Now()
			dial(t, s.addr)
			s.requireReaped(t, began, limitOf, tc.want)
			got := s.reaper.Stats()
			require.EqualValues(t, 1, got.Pings)
			require.Zero(t, got.Missed)
		})
	}
}
