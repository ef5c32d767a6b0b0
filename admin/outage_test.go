package admin

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

// TestHeldVerdictsAreTold lets busy connections fall silent together, and one of them speak again.
func TestHeldVerdictsAreTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, idle.Config{ReadTimeout: 4 * time.Second, Tick: 50 * time.Millisecond}, Config{Token: rightToken})
	var conns []net.Conn
	for range 40 {
		conns = append(conns, s.connect(t, "x"))
	}
	v := s.watch(t)
	v.hello()
	f := v.frame()
	require.False(t, *f.Holding)
	require.Zero(t, *f.Holds)
	holding := func() bool {
		return *decode[shownConns](t, s.do(t, "GET", "/api/connections", "")).Holding
	}
	require.False(t, holding())

	for range 50 {
		for _, c := range conns {
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	before := f
	for ; *f.Holds == 0; f = v.frame() {
		require.Equal(t, 40, f.Connections)
		before = f
	}
	require.True(t, *f.Holding)
	require.True(t, holding())

	_, err := conns[0].Write([]byte("x"))
	require.NoError(t, err)
	for *f.Holding {
		f = v.frame()
	}
	require.Greater(t, *f.Outages, *before.Outages)
	require.Greater(t, *f.Away, *before.Away)
	require.NotNil(t, f.PutOff)
	require.False(t, holding())
}
