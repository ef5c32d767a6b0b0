package idle

import (
	"math"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// maxHorizon is the longest time in which a connection is not judged, in ticks.
const maxHorizon = 1 << 15

// facts returns what a verdict about a connection would be based on now.
func (s *handSite) facts(c gnet.Conn) verdict.Facts {
	l, _, id, st := s.watched(c)
	return l.Facts(id, st, s.at)
}

func TestHeldConnectionsAreNotIdle(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, MaxAge: time.Minute, OutageGrace: -1})
	conn := handle(s.Reaper, s.open(1)[0])
	for range 300 { // more than a state has room for
		conn.Hold()
	}
	s.pass(t, 4*time.Second)
	for range 301 { // one too many
		conn.Release()
	}
	s.pass(t, 900*time.Millisecond)
	require.Zero(t, s.Stats().Closed)
	s.pass(t, 200*time.Millisecond)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.ReadIdle])
}

func TestExemptConnectionsAreNotJudged(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Second, MaxAge: 2 * time.Second, OutageGrace: -1})
	conn := handle(s.Reaper, s.open(1)[0])
	conn.Exempt(true)
	s.pass(t, 4*time.Second)
	require.Zero(t, s.Stats().Closed)
	conn.Exempt(false)
	s.pass(t, 2*s.watch.Clock.Tick())
	require.EqualValues(t, 1, s.Stats().Reaped[reap.MaxAge])
}

// TestTimeoutsOfOneConnection has four connections. Three of them change their timeout.
func TestTimeoutsOfOneConnection(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: 2 * time.Second, OutageGrace: -1})
	var errs []bool
	conns := s.open(4)
	for n, own := range []Timeouts{{Read: time.Second}, {Read: -1}, {Read: 20 * time.Second}, {}} {
		errs = append(errs, handle(s.Reaper, conns[n]).SetTimeouts(own) != nil)
	}
	require.Equal(t, []bool{false, true, false, false}, errs)
	for n, limit := range []mono.Time{mono.Time(time.Second), mono.Time(2 * time.Second), mono.Time(20 * time.Second)} {
		s.pass(t, limit.Sub(s.at)-s.watch.Clock.Tick())
		require.EqualValues(t, n, s.Stats().Closed, "never early")
		s.pass(t, 3*s.watch.Clock.Tick())
		require.EqualValues(t, n+1, s.Stats().Closed)
		require.Nil(t, handle(s.Reaper, conns[n]).state())
	}
	s.pass(t, time.Hour)
	require.Equal(t, 1, s.Connections(), "a connection without timeouts stays open")
}

func TestUpdateReachesLiveConnections(t *testing.T) {
	const n = 500
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, OutageGrace: -1})
	update := func(timeout, tick time.Duration) error {
		return s.Update(func(cfg *Config) { cfg.ReadTimeout, cfg.Tick = timeout, tick })
	}
	tick := s.watch.Clock.Tick()
	require.ErrorContains(t, update(-1, tick), "Config.ReadTimeout is -1ns")
	require.ErrorContains(t, update(time.Minute, time.Second), "until the next start")
	require.Equal(t, time.Hour, s.Config().ReadTimeout, "an error changes nothing")
	s.open(n)
	s.pass(t, 3*time.Second)
	require.NoError(t, update(2*time.Second, tick))
	s.pass(t, 2*tick)
	require.EqualValues(t, n, s.Stats().Reaped[reap.ReadIdle])
	require.NoError(t, update(20*time.Second, tick))
	s.open(1)
	s.pass(t, 4*time.Second)
	require.Equal(t, 1, s.Connections(), "a longer timeout applies to new connections at once")
	require.NoError(t, update(time.Second, tick))
	s.pass(t, 2*tick)
	require.Zero(t, s.Connections())
}

func TestAHandleOfAClosedConnectionDoesNothing(t *testing.T) {
	r := middleware(t, newEcho(), Config{ReadTimeout: time.Minute, MinRate: MinRate{BytesPerSecond: 1}})
	el := newScriptedLoop()
	useAll := func(conn Conn) {
		conn.Ready()
		conn.Hold()
		conn.Release()
		conn.Touch()
		conn.Exempt(true)
		conn.Alive()
		conn.BeginMessage()
		conn.EndMessage()
		conn.SetRemote(&net.TCPAddr{})
		conn.SetGroup("")
		conn.Writable()
	}
	for _, loopKnown := range []bool{false, true} {
		c := newScriptedConn(el, 1)
		conn, ok := r.Conn(c)
		require.False(t, ok, "%v", loopKnown)
		useAll(conn)
		require.ErrorIs(t, conn.SetTimeouts(Timeouts{}), ErrNotWatched)
		require.ErrorIs(t, conn.SetLimits(ConnLimits{}), ErrNotWatched)
		r.OnOpen(c)
		conn, ok = r.Conn(&shellConn{c, c})
		require.True(t, ok)
		useAll(conn)
		require.NoError(t, conn.SetTimeouts(Timeouts{Read: time.Second}))
		require.NotZero(t, conn.ID())
		r.OnClose(c, nil)

		next := newScriptedConn(el, 1) // reuses the descriptor and the state
		r.OnOpen(next)
		l := r.registry.Load().find(el)
		_, id := l.table.Find(key(next))
		before := *l.At(id)
		useAll(conn)
		require.Equal(t, before, *l.At(id), "the handle does not reach the next connection")
		require.Empty(t, l.Remotes)
		require.Empty(t, l.layers)
		require.ErrorIs(t, conn.SetTimeouts(Timeouts{}), ErrNotWatched)
		require.Zero(t, conn.ID())
		r.OnClose(next, nil)
	}
}

// TestLimitsOfOneConnection gives the first connection each limit, and the other one none of them.
func TestLimitsOfOneConnection(t *testing.T) {
	for want, limits := range map[Reason]ConnLimits{
		reap.ReadIdle:     {ReadTimeout: time.Second},
		reap.NoHandshake:  {HandshakeTimeout: time.Second},
		reap.BelowMinRate: {MinRate: MinRate{BytesPerSecond: 1000, Window: time.Second, Always: true}},
		reap.MaxAge:       {MaxAge: time.Second},
		reap.WriteStall:   {WriteStallTimeout: time.Second},
	} {
		s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, OutageGrace: -1, Reset: []Reason{}})
		s.answer = verdict.Evidence{Dated: true, Received: 1, Silent: time.Hour, Queued: 1}
		conns := s.open(2)
		require.NoError(t, handle(s.Reaper, conns[0]).SetLimits(limits))
		other := handle(s.Reaper, conns[1])
		require.ErrorContains(t, other.SetLimits(ConnLimits{MinRate: MinRate{Window: 1}}), "idle: MinRate.BytesPerSecond of a connection is 0")
		s.pass(t, 5*time.Second)
		require.EqualValues(t, 1, s.Stats().Reaped[want], want.Error())
		require.Equal(t, 1, s.Connections())
	}
}

func TestUpdateChangesTheTimeoutsThatSetTimeoutsLeaves(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, MaxAge: 24 * time.Hour, OutageGrace: -1})
	conn := handle(s.Reaper, s.open(1)[0])
	require.NoError(t, conn.SetTimeouts(Timeouts{Read: 2 * time.Hour}))
	require.NoError(t, s.Update(to(Config{ReadTimeout: time.Minute, MaxAge: time.Hour})))
	s.pass(t, 50*time.Minute)
	require.Equal(t, 1, s.Connections())
	s.pass(t, 20*time.Minute)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.MaxAge])
	require.NoError(t, s.Update(to(Config{ReadTimeout: 25 * time.Hour})))
	require.Equal(t, maxHorizon*s.watch.Clock.Tick(), s.watch.Settings().Horizon)
	require.Equal(t, 2*maxHorizon*s.watch.Clock.Tick(), s.watch.Clock.Memory())
}

func TestTouchBeginsAllIdleTimeoutsAnew(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, WriteTimeout: time.Hour})
	c := s.open(1)[0]
	conn := handle(s.Reaper, c)
	for _, touch := range []func(){
		conn.Touch,
		func() { conn.Exempt(true); conn.Exempt(false) },
		func() { conn.Hold(); conn.Release() },
	} {
		before := s.facts(c)
		s.pass(t, time.Second)
		touch()
		require.Greater(t, s.facts(c).Heard.To, before.Heard.To)
		require.Greater(t, s.facts(c).Wrote.To, before.Wrote.To)
	}
	before := *conn.state()
	s.pass(t, time.Second)
	conn.Exempt(false)
	conn.Release()
	require.Equal(t, before, *conn.state(), "a second call does nothing")
}

func TestPongsDoNotExtendTheGrace(t *testing.T) {
	h := pinging()
	h.IsPong = func(gnet.Conn) bool { return true }
	s := newHandSite(t, &reader{}, Config{Heartbeat: h, MaxAge: time.Hour, MaxAgeGrace: time.Hour})
	c := s.open(1)[0]
	for _, pong := range []func(){func() { s.receive(c) }, handle(s.Reaper, c).Alive} {
		before := s.facts(c).LastPing
		s.pass(t, s.watch.Clock.Tick())
		pong()
		require.Greater(t, s.facts(c).LastPing, before)
	}
	l, _, _, st := s.watched(c)
	st.Leave(l.clock, s.at.Add(77*l.clock.Tick()))
	s.pass(t, 100*l.clock.Tick())
	goodbye := s.facts(c).LastPing
	handle(s.Reaper, c).Alive()
	s.receive(c)
	f := s.facts(c)
	require.Equal(t, goodbye, f.LastPing)
	v := l.LimitsOf(st).Judge(&f, &verdict.Away{}, f.Opened.To.Add(time.Hour/2))
	require.Equal(t, verdict.Wait, v.Act, "a connection in its grace gets no ping: %+v", v)
}

func TestWithoutHeartbeatsAnyByteIsASignOfLife(t *testing.T) {
	asked := 0
	h := pinging()
	h.IsPong = func(gnet.Conn) bool { asked++; return false }
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour, Heartbeat: h})
	c := s.open(1)[0]
	s.receive(c)
	require.Equal(t, 1, asked)
	require.NoError(t, s.Update(func(cfg *Config) { cfg.Heartbeat.Interval = 0 }))
	s.pass(t, time.Second)
	before := s.facts(c).Heard.To
	s.receive(c)
	require.Equal(t, 1, asked)
	require.Greater(t, s.facts(c).Heard.To, before)
}

func TestTheNextMessageStartsANewWindow(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MinRate: MinRate{BytesPerSecond: 1, Grace: time.Minute, Always: true}})
	c := s.open(1)[0]
	began := s.facts(c).RatedSince
	require.NotZero(t, began, "a message is always open")
	s.pass(t, time.Second)
	handle(s.Reaper, c).BeginMessage()
	require.Equal(t, began, s.facts(c).RatedSince, "a message is open")
	handle(s.Reaper, c).EndMessage()
	require.Greater(t, s.facts(c).RatedSince, began)
}

// TestTheWindowOfTheNextMessageBeginsInTime ends a message at the beginning of its window.
func TestTheWindowOfTheNextMessageBeginsInTime(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MinRate: MinRate{BytesPerSecond: 10, Window: 10 * time.Second, Always: true}, OutageGrace: -1})
	c := s.open(1)[0]
	s.answer = verdict.Evidence{Dated: true, Received: 1, Silent: time.Hour}
	s.pass(t, time.Second)
	handle(s.Reaper, c).EndMessage()
	s.pass(t, 11*time.Second)
	require.EqualValues(t, 1, s.Stats().Reaped[reap.BelowMinRate])
}

// TestALateDriverClosesNothingEarly opens a connection while the clock does not move. This happens
// when the process is stopped or its processors are busy.
func TestALateDriverClosesNothingEarly(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{FirstByteTimeout: time.Hour, Tick: time.Millisecond})
	s.open(1)
	s.at = s.at.Add(50 * time.Millisecond)
	require.GreaterOrEqual(t, s.facts(s.open(1)[0]).Opened.To, s.at)
}

func TestBeginMessageDoesNotRestartAWindow(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{MinRate: MinRate{BytesPerSecond: 10, Window: 2 * time.Second}})
	c := s.open(1)[0]
	s.answer = verdict.Evidence{Dated: true, Received: 1, Silent: time.Hour}
	conn := handle(s.Reaper, c)
	for range 40 { // called again for each part of a slow message
		conn.BeginMessage()
		s.pass(t, 200*time.Millisecond)
	}
	require.EqualValues(t, 1, s.Stats().Reaped[reap.BelowMinRate])
}

func TestAConnectionWithoutHeartbeatIsNotPinged(t *testing.T) {
	ping := func(gnet.Conn) []byte { return nil }
	s := newHandSite(t, &reader{}, Config{Heartbeat: Heartbeat{Interval: time.Second, Ping: ping}, OutageGrace: -1})
	conns := s.open(2)
	quiet := handle(s.Reaper, conns[0])
	s.pass(t, 1500*time.Millisecond)
	require.EqualValues(t, 2, s.Stats().Pings)
	require.NoError(t, quiet.SetTimeouts(Timeouts{NoHeartbeat: true}))
	s.pass(t, 10*time.Second)
	require.NotNil(t, quiet.state(), "an earlier ping does not close it")
	require.Nil(t, handle(s.Reaper, conns[1]).state())
	require.EqualValues(t, 3, s.Stats().Pings)
	require.NoError(t, quiet.SetTimeouts(Timeouts{}))
	s.pass(t, 10*time.Second)
	require.Nil(t, quiet.state())
}

// TestTimeoutsFarFromTheTickAreAccepted has an MQTT client that asks for a keep-alive time of
// 60,000 s, and a limit of 500 ms that makes the tick short.
func TestTimeoutsFarFromTheTickAreAccepted(t *testing.T) {
	t.Parallel()
	const keepAlive = 60_000 * time.Second
	s := newHandSite(t, &reader{}, Config{FirstByteTimeout: 5 * time.Second, OutageGrace: -1, Tick: time.Second})
	c := s.open(1)[0]
	s.receive(c)
	began := s.at
	conn := handle(s.Reaper, c)
	require.NoError(t, conn.SetTimeouts(Timeouts{Read: keepAlive}))
	for conn.state() != nil && s.at < began.Add(2*keepAlive) {
		s.pass(t, s.watch.Clock.Tick())
	}
	require.InDelta(t, keepAlive, s.at.Sub(began), float64(4*s.watch.Clock.Tick()))
	require.GreaterOrEqual(t, s.at.Sub(began), keepAlive)
	require.LessOrEqual(t, s.watch.Clock.Memory(), 2*maxHorizon*s.watch.Clock.Tick())

	for text, timeouts := range map[string]Timeouts{
		"idle: Timeouts are {Read:0s Write:0s All:-1s":       {All: -time.Second},
		"idle: WriteTimeout of a connection is 1000000h0m0s": {Write: 1_000_000 * time.Hour},
	} {
		require.ErrorContains(t, handle(s.Reaper, s.open(1)[0]).SetTimeouts(timeouts), text)
	}
}

func TestASoonerDrainTightensTheDeadline(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{ReadTimeout: time.Hour})
	for _, c := range s.open(8) {
		handle(s.Reaper, c).Hold()
	}
	drained := func() uint64 { return s.Stats().Reaped[reap.Drained] }
	require.NoError(t, s.Drain(0, time.Hour))
	s.pass(t, time.Minute)
	require.Zero(t, drained())
	require.NoError(t, s.Drain(0, 2*time.Hour))
	require.NoError(t, s.Drain(time.Second, 5*time.Second))
	require.NoError(t, s.Drain(0, 2*time.Hour), "a later deadline changes nothing")
	s.pass(t, 4*time.Second)
	require.Zero(t, drained())
	s.pass(t, 2*time.Second)
	require.EqualValues(t, 8, drained())
}

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
	s.pass(t, time.Second) // so that the longest duration from now on overflows
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

// TestAnIDIsTheSameForTheLifeOfAConnection saves it in an OnOpen that crosses a tick, and looks at
// it again when the connection is older than the clock reaches.
func TestAnIDIsTheSameForTheLifeOfAConnection(t *testing.T) {
	var saved ConnID
	e := newEcho()
	s := newHandSite(t, e, Config{ReadTimeout: 10 * time.Second, Tick: time.Millisecond, OutageGrace: -1})
	e.open = func(c gnet.Conn) ([]byte, gnet.Action) {
		saved = handle(s.Reaper, c).ID()
		s.at = s.at.Add(20 * time.Millisecond)
		return nil, gnet.None
	}
	c := s.open(1)[0]
	require.Equal(t, saved, handle(s.Reaper, c).ID())
	handle(s.Reaper, c).Exempt(true)
	for range 3 {
		s.at = s.at.Add(1 << 29 * time.Millisecond)
		s.pass(t, time.Second)
		require.Equal(t, saved, handle(s.Reaper, c).ID())
	}
	l, _, id, state := s.watched(c)
	require.True(t, kick(l, id, state))
}
