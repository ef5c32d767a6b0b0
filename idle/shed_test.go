package idle

import (
	"errors"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// TestOnlyTheExcessIsShed fills a table up to the number at which shedding begins.
func TestOnlyTheExcessIsShed(t *testing.T) {
	for _, tc := range []struct{ limit, open, stay int }{
		{100, 94, 94}, {100, 95, 94}, {400, 376, 375}, {16, 16, 15}, {2, 2, 1}, {1, 1, 1},
	} {
		e := newEcho()
		s := newHandSite(t, e, Config{MaxConnections: tc.limit, Tick: 100 * time.Millisecond})
		conns := s.open(tc.open)
		s.pass(t, 10*time.Second)
		require.Equal(t, tc.stay, s.Connections(), "of %d with a limit of %d", tc.open, tc.limit)
		require.Zero(t, s.crowd.shedding.Load())
		for _, err := range e.closes {
			var reason *ReapError
			require.ErrorAs(t, err, &reason)
			require.GreaterOrEqual(t, reason.Lasted, time.Second)
		}
		for _, c := range conns[tc.open-tc.stay:] {
			s.OnClose(c, nil)
		}
	}
}

// TestTheLongestIdleAreShedFirst fills the table with connections, some of them active, held or
// exempt, and then opens more.
func TestTheLongestIdleAreShedFirst(t *testing.T) {
	const news, tick = 30, 100 * time.Millisecond
	// Shedding begins at 60.
	s := newHandSite(t, &reader{}, Config{MaxConnections: 64, ShedProtect: time.Second, HandshakeTimeout: time.Hour, Tick: tick})
	special := s.open(4)
	handle(s.Reaper, special[0]).Hold()
	handle(s.Reaper, special[1]).Exempt(true)
	pass := func() {
		s.receive(special[2])
		s.receive(special[3])
		s.pass(t, tick)
	}
	var idle []*scriptedConn
	for range 56 {
		idle = append(idle, s.open(1)...)
		pass()
	}
	for range 20 {
		pass()
	}
	require.Equal(t, 60, s.Connections(), "there is room")
	for range news {
		special = append(special, s.open(1)...)
		pass()
	}
	require.Zero(t, s.Stats().Refused)
	require.EqualValues(t, news, s.Stats().Reaped[reap.Shed])
	for i, c := range special {
		require.True(t, s.has(c), "connection %d is in use or new", i+1)
	}
	for i, c := range idle {
		require.Equal(t, i >= news, s.has(c), "idle connection %d", i+1)
	}
}

func TestConnectionsInTheHandshakeAreShedFirst(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 16, ShedProtect: time.Second, HandshakeTimeout: time.Minute})
	older := s.open(8)
	for _, c := range older {
		handle(s.Reaper, c).Ready()
	}
	s.pass(t, time.Second)
	s.open(7)
	s.pass(t, 2*time.Second)
	for range 4 {
		s.open(1)
		s.pass(t, s.watch.Clock.Tick())
	}
	require.EqualValues(t, 4, s.Stats().Reaped[reap.Shed])
	for _, c := range older {
		require.True(t, s.has(c), "a ready connection is not shed, although it has been idle longer")
	}
}

// TestASilentSubscriberIsNotShed has peers that receive messages and send none.
func TestASilentSubscriberIsNotShed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 8, ShedProtect: time.Second})
	s.answer = verdict.Evidence{Dated: true, Received: 1, Silent: time.Hour, Quiet: time.Second / 2, Queued: -1}
	s.open(8)
	s.pass(t, 10*time.Second)
	require.Equal(t, 8, s.Connections())
	s.answer.Quiet = 2 * time.Second
	s.pass(t, time.Second)
	require.Equal(t, 7, s.Connections())
	require.EqualValues(t, 1, s.Stats().Reaped[reap.Shed])
}

// TestAConnectionWithoutRoomIsRefused fills a table with connections that are protected. With
// ObserveOnly there is room for more.
func TestAConnectionWithoutRoomIsRefused(t *testing.T) {
	for _, observes := range []bool{false, true} {
		const limit, more = 16, 3
		opened, refused := limit, more
		if observes {
			opened, refused = limit+more, 0
		}
		e, opens := newEcho(), 0
		e.open = func(gnet.Conn) ([]byte, gnet.Action) { opens++; return nil, gnet.None }
		s := newHandSite(t, e, Config{MaxConnections: limit, ShedProtect: time.Hour, ObserveOnly: observes})
		conns := s.open(limit + more)
		s.pass(t, time.Second)
		require.Equal(t, opened, s.Connections())
		require.EqualValues(t, opened, s.Stats().Opened)
		require.EqualValues(t, refused, s.Stats().Refused)
		require.EqualValues(t, more-refused, s.Stats().Observed[reap.Shed])
		for _, c := range conns {
			s.OnClose(c, nil)
		}
		require.Equal(t, opened, opens)
		require.Len(t, e.reasons(), opened, "the handler gets no call for a refused connection")
		require.NoError(t, setMax(s.Reaper, limit+1))
		s.open(limit + 1)
		require.Equal(t, opened+limit+1, opens)
	}
}

// TestARefusalUsesTheCurrentConfig has a loop that had no connection since the Config was changed.
func TestARefusalUsesTheCurrentConfig(t *testing.T) {
	refusal := func(text string) func(gnet.Conn) []byte {
		return func(gnet.Conn) []byte { return []byte(text) }
	}
	s := newHandSite(t, newEcho(), Config{MaxConnections: 1, Refusal: refusal("old")})
	s.OnClose(s.open(1)[0], nil) // registers the loop
	first := s.open(1)[0]
	other := &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	c := newScriptedConn(other, 1000)
	s.OnOpen(c)
	s.OnClose(c, nil)
	require.Equal(t, "old", c.said)
	require.NoError(t, s.Update(to(Config{MaxConnections: 1, Refusal: refusal("new")})))
	s.OnOpen(c)
	s.OnClose(c, nil)
	require.Equal(t, "new", c.said)
	s.OnClose(first, nil)
}

// TestATaskShedsAnEighth has far too many connections after an update.
func TestATaskShedsAnEighth(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 100, ReadTimeout: time.Hour})
	l, _, _, _ := s.watched(s.open(16)[0])
	s.pass(t, time.Minute)
	require.NoError(t, setMax(s.Reaper, 1))
	l.shed(func() bool { return false })
	require.Equal(t, 14, l.Open)
}

// TestAConnectionThatHasBecomeProtectedIsNotShed chooses a connection when it is not yet protected.
func TestAConnectionThatHasBecomeProtectedIsNotShed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 2})
	c := s.open(1)[0]
	s.pass(t, time.Second)
	s.receive(c)
	s.pass(t, time.Second)
	l, r, id, _ := s.watched(c)
	chosen := candidate{id: id, heard: r.Heard}
	require.NoError(t, setMax(s.Reaper, 100))
	require.False(t, l.shedOne(chosen, 0), "the limit was raised meanwhile")
	require.NoError(t, setMax(s.Reaper, 1))
	s.crowd.shedding.Store(-10) // ten connections too many
	require.False(t, l.shedOne(chosen, time.Minute))
	require.False(t, l.shedOne(candidate{id: id, heard: r.Heard - 1}, 0), "a peer was heard meanwhile")
	handle(s.Reaper, c).Hold()
	require.False(t, l.shedOne(chosen, 0), "it is held")
	handle(s.Reaper, c).Release()
	require.False(t, l.shedOne(chosen, 0), "the server has worked on a request meanwhile")
	chosen.touched = l.At(id).Touched()
	require.True(t, l.shedOne(chosen, 0))
}

// TestALoopOfRefusedConnectionsIsRetired has two loops on which the last connection to close was
// refused. One of them had no other connection.
func TestALoopOfRefusedConnectionsIsRetired(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 1})
	other := &handLoop{scriptedLoop: newScriptedLoop(), r: s.Reaper}
	for range 2 {
		first := s.open(1)[0]
		refused := s.open(2)
		for n := range 2 {
			refused = append(refused, newScriptedConn(other, 1000+n))
			s.OnOpen(refused[2+n])
		}
		require.Len(t, s.live, 2)
		s.OnClose(first, nil)
		require.Len(t, s.live, 2)
		for n, c := range refused {
			require.NotNil(t, s.driver, "gnet has not told yet that connection %d is closed", n)
			s.OnClose(c, nil)
		}
		require.Empty(t, s.live)
		require.Nil(t, s.driver)
		require.Zero(t, s.Connections())
	}
	require.EqualValues(t, 8, s.Stats().Refused)
	require.EqualValues(t, 2, s.Stats().Closed)
}

// TestConnectionsThatMayNotBeShedDoNotHideOthers has connections that are protected and silent for
// longest, more than a scan finds. The others are silent for a minute.
func TestConnectionsThatMayNotBeShedDoNotHideOthers(t *testing.T) {
	for name, protect := range map[string]func(Conn){
		"held": Conn.Hold, "exempt": func(c Conn) { c.Exempt(true) }, "sent to": func(Conn) {},
	} {
		s := newHandSite(t, &reader{}, Config{MaxConnections: 1000, ShedProtect: time.Second, Tick: 100 * time.Millisecond})
		gets := map[int]bool{} // data
		s.kernel.ask = func(fd int, ev *verdict.Evidence) {
			*ev = verdict.Evidence{Dated: true, Received: 1, Silent: time.Hour, Quiet: time.Hour, Queued: -1}
			if gets[fd] {
				ev.Quiet = time.Second / 2
			}
		}
		protected := s.open(maxCandidates + 44)
		for _, c := range protected {
			protect(handle(s.Reaper, c))
			gets[c.Fd()] = name == "sent to"
		}
		s.pass(t, 10*time.Second)
		s.open(930 - len(protected))
		s.pass(t, time.Minute)
		for range 200 {
			s.open(1)
			s.pass(t, time.Second)
		}
		require.Zero(t, s.Stats().Refused, name)
		require.True(t, s.has(protected[0]), name)
		clear(gets)
		s.open(50)
		s.pass(t, time.Second)
		require.Equal(t, name != "sent to", s.has(protected[0]), "it is closed first if nothing is sent to it")
	}
}

func TestATouchedConnectionIsShedLater(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 4})
	touched := s.open(1)[0]
	s.pass(t, 10*time.Second)
	idle := s.open(1)[0]
	s.pass(t, 10*time.Second)
	handle(s.Reaper, touched).Touch()
	s.pass(t, 10*time.Second)
	s.open(2)
	s.pass(t, time.Second)
	require.True(t, s.has(touched))
	require.False(t, s.has(idle))
}

// TestObserveOnlyCountsAllThatWouldBeShed lowers the limit below the idle connections.
func TestObserveOnlyCountsAllThatWouldBeShed(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 10000, ObserveOnly: true, Tick: 100 * time.Millisecond})
	s.open(1000)
	s.pass(t, time.Minute)
	require.NoError(t, setMax(s.Reaper, 100))
	s.pass(t, 30*100*time.Millisecond) // shedBatch in a tick
	require.EqualValues(t, 1000-94, s.Stats().Observed[reap.Shed])
}

// TestHeldAndExemptConnectionsMakeNoRoom fills a table with them, and drains it.
func TestHeldAndExemptConnectionsMakeNoRoom(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MaxConnections: 4})
	conns := s.open(4)
	for i, c := range conns {
		if conn := handle(s.Reaper, c); i < 2 {
			conn.Hold()
		} else {
			conn.Exempt(true)
		}
	}
	s.pass(t, 10*time.Second)
	require.Equal(t, 4, s.Connections())
	require.Zero(t, s.crowd.shedding.Load())
	handle(s.Reaper, conns[0]).Release()
	s.pass(t, 10*time.Second)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.Shed])
	require.Zero(t, s.crowd.shedding.Load())
	require.NoError(t, s.Drain(0, time.Second))
	s.open(1)
	require.EqualValues(t, 1, s.Stats().Refused)
	s.pass(t, 2*time.Second)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.Drained], "the held one, at the deadline")
	require.Equal(t, 2, s.Connections(), "exempt connections stay")
}

// A stuckConn is a connection that gnet has not made. Its Close returns an error at first.
type stuckConn struct {
	*scriptedConn
	err error
}

func (c *stuckConn) Close() error { return c.err }

// TestAConnectionThatCannotBeClosedTakesRoom tries to close it again.
func TestAConnectionThatCannotBeClosedTakesRoom(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, Reset: []Reason{}})
	c := &struct{ *stuckConn }{&stuckConn{newScriptedConn(s.el, 1), errors.New("stuck")}}
	s.OnOpen(c)
	calls := 0
	handle(s.Reaper, c).Every(time.Second, func(gnet.Conn) { calls++ })
	for _, decided := range []int{0, 1} {
		s.pass(t, 3*time.Second)
		require.EqualValues(t, decided, s.watch.Decided.Load())
		require.Equal(t, decided, s.registry.Load().loops[0].Ends.Len())
		c.err = nil
	}
	before := calls
	s.pass(t, 3*time.Second)
	require.Equal(t, before, calls, "timers of a connection that has ended are not called")
	s.OnClose(c, nil)
	require.Zero(t, s.watch.Decided.Load())
	require.EqualValues(t, 1, s.Stats().Reaped[reap.ReadIdle])
}
