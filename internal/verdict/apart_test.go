package verdict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// TestOverlappingOutagesOfTwoPartsAreBounded has silences of two groups of a connection that
// overlap in turn, each longer than the limit. Together they are no outage without an end.
func TestOverlappingOutagesOfTwoPartsAreBounded(t *testing.T) {
	const limit, length = time.Second, 1150 * time.Millisecond
	var all Outages
	at := mono.Time(0)
	for range 100 {
		all = all.AddApart(Outage{From: at, To: at.Add(length), Length: length})
		at = at.Add(time.Second)
	}
	require.Len(t, all, 1)
	require.LessOrEqual(t, all[0].beyond(0, limit), 100*(length-limit))
	same := all.AddApart(all[0])
	require.Equal(t, all, same, "one outage that both parts have counts once")

	first := Outage{From: 0, To: mono.Time(length), Length: length}
	second := Outage{From: mono.Time(limit), To: mono.Time(limit + length), Length: length}
	require.Equal(t, Outages{first}.AddApart(second), Outages{second}.AddApart(first), "their order does not matter")
}
