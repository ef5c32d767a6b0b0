package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAnInspectionShowsWhatTheKernelKnows has bytes that no handler has read.
func TestAnInspectionShowsWhatTheKernelKnows(t *testing.T) {
	p := newTestPort(t, testConfig{ReadTimeout: 5 * time.Second, ObserveOnly: true})
	for range inspectStep + 1 {
		p.open()
	}
	p.pass(10 * time.Second)
	p.answer = verdict.Evidence{Dated: true, Silent: 2 * time.Second, Quiet: 3 * time.Second, Queued: 4, Received: 5, Acked: 6}
	i, err := p.NewInspector(reap.Query{Limit: 1, States: true})
	require.NoError(t, err)
	p.Ends.Add(1, false, p.NewError(reap.Kicked)) // it is not closed yet
	for next, more := uint32(0), true; more; {
		next, more = p.Inspect(next, i)
	}
	require.Equal(t, inspectStep+1, i.Result().States["observed"])
	got := i.Result().Connections[0]
	got.Due = 0
	require.Equal(t, reap.ConnInfo{ID: "1-0-1", Age: 9975 * time.Millisecond, ReadIdle: 2 * time.Second, WriteIdle: 3 * time.Second,
		Received: 5, Sent: 6, Output: 4, State: "observed"}, got)
}
