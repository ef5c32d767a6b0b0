package watch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestAnEndIsCountedOnce ends a connection that is counted already if it was observed.
func TestAnEndIsCountedOnce(t *testing.T) {
	for _, observed := range []bool{false, true} {
		var w Watcher
		e := Ends{&w, make(map[uint32]*End)}
		if observed {
			w.Decided.Add(1)
		}
		end := e.Add(7, observed, &reap.Error{Reason: reap.Kicked})
		require.Same(t, end, e.Of(7))
		require.EqualValues(t, 1, w.Decided.Load(), "observed: %v", observed)
	}
}

func TestTheNumberOfKeptEntriesChanges(t *testing.T) {
	var c ClosedRing
	began := time.Now()
	for i, keep := range []int{2, 2, 2, 4, 4, 4, 4} {
		c.Add(reap.Closed{At: began.Add(time.Duration(i)), Err: &reap.Error{Bytes: i}}, keep)
	}
	var got []int
	for _, o := range c.Newest(4) {
		got = append(got, o.Err.Bytes)
	}
	require.Equal(t, []int{6, 5, 4, 3}, got)
	c.Keep(1)
	require.Len(t, c.Newest(4), 1)
	c.Keep(0)
	require.Nil(t, c.kept, "nothing stays in memory")
}
