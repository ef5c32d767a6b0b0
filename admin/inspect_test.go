package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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

// An unwritable is a Reaper with a connection that is not writable, and with one that is.
type unwritable struct{ reap.Reaper }

func (unwritable) Inspect(context.Context, reap.Query) (reap.Inspection, error) {
	return reap.Inspection{Connections: []reap.ConnInfo{{Unwritable: true}, {}}}, nil
}

func TestConnectionsThatAreNotWritable(t *testing.T) {
	list, err := inspector{unwritable{}}.connections(t.Context(), "idle", 2)
	require.NoError(t, err)
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), `"unwritable":true`), string(text))
}
