package admin

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/testpeer"
)

// TestHeldVerdictsAreShown silences all busy connections at once, and then lets one of them send
// again.
func TestHeldVerdictsAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, idle.Config{ReadTimeout: 4 * time.Second, Tick: 50 * time.Millisecond}, Config{Token: rightToken})
	var conns []net.Conn
	for range 40 {
		conns = append(conns, s.connect(t, "x"))
	}
	stop := testpeer.KeepSending(t, conns)
	v := s.watch(t)
	v.hello()
	f := v.frame()
	require.False(t, *f.Holding)
	require.Zero(t, *f.Holds)
	holding := func() bool {
		return *decode[shownConns](t, s.do(t, "GET", "/api/connections", "")).Holding
	}
	require.False(t, holding())

	// A connection counts as busy if it was open for longer than the silence.
	time.Sleep(time.Second)
	stop()
	previous := f
	for ; *f.Holds == 0; f = v.frame() {
		require.Equal(t, 40, f.Connections)
		previous = f
	}
	require.True(t, *f.Holding)
	require.True(t, slices.ContainsFunc(f.Held, func(h hold) bool { return h.Silent > 0 && h.Group == "all" }))
	require.True(t, holding())

	_, err := conns[0].Write([]byte("x"))
	require.NoError(t, err)
	for *f.Holding {
		f = v.frame()
	}
	require.Greater(t, *f.Outages, *previous.Outages)
	require.Greater(t, *f.OutageTime, *previous.OutageTime)
	require.NotNil(t, f.PutOff)
	require.False(t, holding())
}
