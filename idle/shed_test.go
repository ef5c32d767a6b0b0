package idle

import (
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/reap"
)

// TestOnlyTheExcessIsShed fills a table up to the number at which shedding begins.
func TestOnlyTheExcessIsShed(t *testing.T) {
	for _, tc := range []struct{ limit, open, stay int }{
		{100, 94, 94}, {100, 95, 94}, {400, 376, 375}, {16, 16, 15}, {2, 2, 1}, {1, 1, 1},
	} {
		s := newHandSite(t, newEcho(), Config{MaxConnections: tc.limit, Tick: 100 * time.Millisecond})
		conns := s.open(tc.open)
		s.pass(t, 10*time.Second)
		require.Equal(t, tc.stay, s.Connections(), "of %d with a limit of %d", tc.open, tc.limit)
		for _, c := range conns[tc.open-tc.stay:] {
			s.OnClose(c, nil)
		}
	}
}

func TestObserveOnlyRefusesNoConnection(t *testing.T) {
	opened := 0
	e := newEcho()
	e.open = func(gnet.Conn) ([]byte, gnet.Action) { opened++; return nil, gnet.None }
	s := newHandSite(t, e, Config{MaxConnections: 2, ObserveOnly: true})
	conns := s.open(5)
	require.Equal(t, 5, opened)
	s.pass(t, time.Second)
	require.Equal(t, 5, s.Connections())
	require.Zero(t, s.Stats().Refused)
	require.EqualValues(t, 3, s.Stats().Observed[reap.Shed])
	for _, c := range conns {
		s.OnClose(c, nil)
	}
}

// TestARefusalUsesTheCurrentConfig has a loop that had no connection since the Config was changed.
func TestARefusalUsesTheCurrentConfig(t *testing.T) {
	said := ""
	refusal := func(text string) func(gnet.Conn) []byte {
		return func(gnet.Conn) []byte { said = text; return nil }
	}
	s := newHandSite(t, newEcho(), Config{MaxConnections: 1, Refusal: refusal("old")})
	s.OnClose(s.open(1)[0], nil) // registers the loop
	first := s.open(1)[0]
	other := &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	c := newScriptedConn(other, 1000)
	s.OnOpen(c)
	s.OnClose(c, nil)
	require.Equal(t, "old", said)
	require.NoError(t, s.Update(to(Config{MaxConnections: 1, Refusal: refusal("new")})))
	s.OnOpen(c)
	s.OnClose(c, nil)
	require.Equal(t, "new", said)
	s.OnClose(first, nil)
}

// TestAConnectionThatHasBecomeProtectedIsNotShed chooses a connection when it is not yet protected.
func TestAConnectionThatHasBecomeProtectedIsNotShed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 2})
	c := s.open(1)[0]
	s.pass(t, time.Second)
	s.receive(c)
	s.pass(t, time.Second)
	l, r, id, _ := s.watched(c)
	chosen := candidate{id, r.Heard, false}
	require.NoError(t, setMax(s.Reaper, 100))
	require.False(t, l.shedOne(chosen, 0), "the limit was raised meanwhile")
	require.NoError(t, setMax(s.Reaper, 1))
	s.crowd.shedding.Store(-10) // ten connections too many
	require.False(t, l.shedOne(chosen, time.Minute))
	require.True(t, l.shedOne(chosen, 0))
}
