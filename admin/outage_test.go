package admin

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
)

// chatter sends on all connections every 20 ms until the returned function is called: a pause of
// seconds would teach the server that such silences are normal.
func chatter(t *testing.T, conns []net.Conn) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil && err == nil {
			for _, c := range conns {
				if _, err = c.Write([]byte("x")); err != nil {
					break
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	end := func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return func() {
		end()
		require.NoError(t, err)
	}
}

// TestHeldVerdictsAreTold lets busy connections fall silent together, and one of them speak again.
func TestHeldVerdictsAreTold(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, idle.Config{ReadTimeout: 4 * time.Second, Tick: 50 * time.Millisecond}, Config{Token: rightToken})
	var conns []net.Conn
	for range 40 {
		conns = append(conns, s.connect(t, "x"))
	}
	stop := chatter(t, conns)
	v := s.watch(t)
	v.hello()
	f := v.frame()
	require.False(t, *f.Holding)
	require.Zero(t, *f.Holds)
	holding := func() bool {
		return *decode[shownConns](t, s.do(t, "GET", "/api/connections", "")).Holding
	}
	require.False(t, holding())

	time.Sleep(time.Second) // only connections that were open for longer than the silence count as busy
	stop()
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
