package idlenet

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
	"github.com/idlewheel/idlewheel/reap"
)

// TestAGroupWithANameIsHeld silences the connections of one name among others from the same
// address.
func TestAGroupWithANameIsHeld(t *testing.T) {
	t.Parallel()
	const n, timeout = 40, 2 * time.Second
	e := newEcho(t, Config{ReadTimeout: timeout, Tick: 50 * time.Millisecond})
	var some, others []net.Conn
	for range n {
		some, others = append(some, e.dial()), append(others, e.dial())
	}
	for _, c := range append(some, others...) {
		say(t, c, "x")
	}
	peers := map[string]bool{}
	for _, c := range some {
		peers[c.LocalAddr().String()] = true
	}
	e.mu.Lock()
	for _, c := range e.conns {
		e.conn(c).SetGroup("gone")
		if !peers[c.RemoteAddr().String()] {
			e.conn(c).SetGroup("")
		}
	}
	e.mu.Unlock()
	stop := testpeer.KeepSending(t, some)
	_ = testpeer.KeepSending(t, others)
	time.Sleep(2 * timeout)
	stop()
	stopped := time.Now()
	eventually(t, "the group is held", func() bool { return len(e.Stats().Held) > 0 })
	require.Equal(t, reap.Group{Name: "gone"}, e.Stats().Held[0].Group)
	require.Less(t, e.Stats().Held[0].For, time.Since(stopped)+time.Second)
	time.Sleep(time.Until(stopped.Add(timeout * 3 / 2)))
	require.Empty(t, e.ended(), "verdicts are held")
	testpeer.KeepSending(t, some[:1])
	eventually(t, "the hold is over", func() bool { return len(e.Stats().Held) == 0 })
	require.EqualValues(t, 1, e.Stats().GroupHolds)
	eventually(t, "silent connections end", func() bool { return len(e.ended()) == n-1 })
}
