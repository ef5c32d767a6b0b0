package idle

import (
	"math"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

func TestTimersOfAConnection(t *testing.T) {
	const tick = 100 * time.Millisecond
	s := newHandSite(t, newEcho(), Config{ReadTimeout: time.Hour, Tick: tick})
	c := s.open(2)[0]
	conn := handle(s.Reaper, c)
	var once, every []mono.Time
	conn.After(time.Second, func(got gnet.Conn) {
		require.Same(t, c, got)
		once = append(once, s.at)
	})
	stop := conn.Every(250*time.Millisecond, func(gnet.Conn) { every = append(every, s.at) })
	never := conn.After(time.Second, func(gnet.Conn) { t.Error("a stopped timer is called") })
	require.True(t, never())
	require.False(t, never())
	s.pass(t, 2*time.Second)
	require.Len(t, once, 1)
	require.InDelta(t, time.Second+tick, once[0].Sub(0), float64(tick))
	require.Len(t, every, 8)
	require.True(t, stop())
	s.pass(t, 2*time.Second)
	require.Len(t, every, 8)

	conn.Every(time.Nanosecond, func(gnet.Conn) { once = nil })
	s.OnClose(c, nil)
	s.pass(t, time.Second)
	require.NotNil(t, once, "the connection has closed")
	require.Zero(t, s.registry.Load().loops[0].timers.Len())
	require.False(t, conn.After(time.Second, func(gnet.Conn) { t.Error("a timer of a closed connection") })())
}

func TestTimersWithBadArguments(t *testing.T) {
	s := newHandSite(t, newEcho(), Config{ReadTimeout: time.Hour})
	conn := handle(s.Reaper, s.open(1)[0])
	f := func(gnet.Conn) {}
	require.Panics(t, func() { conn.After(time.Second, nil) })
	require.Panics(t, func() { conn.Every(0, f) })
	require.Panics(t, func() { conn.Every(-time.Second, f) })
	calls := 0
	for _, d := range []time.Duration{math.MinInt64, -1, 0} {
		conn.After(d, func(gnet.Conn) { calls++ })
	}
	far := func(gnet.Conn) { t.Error("a timer of ten years is called") }
	conn.After(math.MaxInt64, far)
	conn.Every(math.MaxInt64, far)
	s.pass(t, 3*s.watch.Clock.Tick())
	require.Equal(t, 3, calls)
}

// TestATimerMayCloseItsConnection also lets a timer of the same tick follow, which is not called.
func TestATimerMayCloseItsConnection(t *testing.T) {
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: time.Hour})
	calls := 0
	closing := func(c gnet.Conn) {
		calls++
		require.NoError(t, c.EventLoop().Close(c))
	}
	conn := handle(s.Reaper, s.open(2)[0])
	conn.After(time.Second, closing)
	conn.Every(time.Second, closing)
	s.pass(t, time.Minute)
	require.Equal(t, 1, calls)
	require.Equal(t, 1, s.Connections())
}

// TestTimersAndVerdictsTakeTurns has many timers and many dead connections that are due together.
func TestTimersAndVerdictsTakeTurns(t *testing.T) {
	const n, cost = 100, 100 * time.Microsecond
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: time.Second, OutageGrace: -1})
	e.closed = func(gnet.Conn, error) gnet.Action { s.at = s.at.Add(cost); return gnet.None }
	conns := s.open(n + 1)
	calls := 0
	for range n {
		handle(s.Reaper, conns[n]).After(time.Second, func(gnet.Conn) { calls++; s.at = s.at.Add(cost) })
	}
	handle(s.Reaper, conns[n]).Exempt(true)
	for calls < n/2 {
		s.at = s.at.Add(s.watch.Clock.Tick())
		s.round()
		for len(s.el.tasks) > 0 {
			require.NoError(t, s.el.run(t))
		}
		require.InDelta(t, s.Stats().Closed, calls, n/5)
	}
	s.pass(t, time.Minute)
	require.Equal(t, n, calls)
	require.EqualValues(t, n, s.Stats().Closed)
}
