package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/reap"
)

// Readers in other time zones compare these times as text.
func TestTimesAreInUTC(t *testing.T) {
	there := time.FixedZone("there", 2*60*60)
	one := newClosed([]idle.Closed{{At: time.Date(2026, 11, 22, 2, 10, 0, 0, there), Err: &idle.ReapError{Reason: reap.Kicked}}})[0]
	require.Equal(t, "2026-11-22T00:10:00Z", one.At.Format(time.RFC3339Nano), "as docs/run.md says")
	require.Empty(t, one.Remote, "an address may be missing")
	require.NotEmpty(t, fmt.Sprint(one.Reason))
}
