package watch

import (
	"testing"

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
