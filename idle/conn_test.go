package idle

import (
	"math"
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

// A watched is a connection of a scripted loop, and the Reaper that watches it. Tests of the facts
// of one connection use it.
type watched struct {
	c *scriptedConn
	r *Reaper
	l *loop
}

// newWatched opens a connection through a Reaper with the given Config. No deadline is near.
func newWatched(t *testing.T, cfg Config) watched {
	t.Helper()
	e := newEcho()
	e.traffic = func(gnet.Conn) gnet.Action { return gnet.None }
	r := middleware(t, e, cfg)
	c := newScriptedConn(newScriptedLoop(), 1)
	r.OnOpen(c)
	t.Cleanup(func() { r.OnClose(c, nil) })
	return watched{c, r, r.registry.Load().find(c.el)}
}

func (w watched) state() *conn {
	_, id := w.l.table.Find(key(w.c))
	return w.l.At(id)
}

func (w watched) facts() verdict.Facts {
	_, id := w.l.table.Find(key(w.c))
	return w.l.Facts(id, w.state(), w.l.clock.Elapsed())
}

// due returns the time at which the wheel judges the connection.
func (w watched) due(t *testing.T) time.Duration {
	t.Helper()
	require.Equal(t, 1, w.l.Schedule.Len())
	return time.Duration(w.l.Schedule.NextDue())
}

// follow makes the loop take over the current settings.
func (w watched) follow() {
	w.l.follow()
	w.l.AdaptSome(int(w.l.Len()))
}

func TestTheReasonIsOfTheReapedConnection(t *testing.T) {
	e := newEcho()
	r := middleware(t, e, quickConfig)
	el := newScriptedLoop()
	reaped, other := newScriptedConn(el, 1), newScriptedConn(el, 2)
	r.OnOpen(reaped)
	r.OnOpen(other)
	l := r.registry.Load().find(el)
	_, id := l.table.Find(key(reaped))
	l.closing = closing{l.At(id), &ReapError{Reason: reap.ReadIdle}}
	r.OnClose(other, nil) // a handler may close another connection meanwhile
	r.OnClose(reaped, nil)
	l.closing = closing{}
	require.NoError(t, e.reasons()[0])
	require.ErrorIs(t, e.reasons()[1], reap.ReadIdle)
}

func TestSetTimeoutsMovesTheDeadlineBothWays(t *testing.T) {
	w := newWatched(t, Config{ReadTimeout: time.Hour})
	require.NoError(t, handle(w.r, w.c).SetTimeouts(Timeouts{Read: time.Minute}))
	require.Less(t, w.due(t), 2*time.Minute)
	require.NoError(t, handle(w.r, w.c).SetTimeouts(Timeouts{Read: 20 * time.Hour}))
	require.Equal(t, 20*time.Hour, w.l.LimitsOf(w.state()).Read)
}

func TestUpdateChangesTheTimeoutsThatSetTimeoutsLeaves(t *testing.T) {
	w := newWatched(t, Config{ReadTimeout: time.Hour, MaxAge: 24 * time.Hour})
	require.NoError(t, handle(w.r, w.c).SetTimeouts(Timeouts{Read: 2 * time.Hour}))
	require.NoError(t, w.r.Update(to(Config{ReadTimeout: 3 * time.Hour, MaxAge: time.Minute})))
	w.follow()
	lim := w.l.LimitsOf(w.state())
	require.Equal(t, 2*time.Hour, lim.Read)
	require.Equal(t, time.Minute, lim.Age)
	require.Less(t, w.due(t), 2*time.Minute)
	require.NoError(t, w.r.Update(to(Config{ReadTimeout: 25 * time.Hour})))
	require.Equal(t, maxHorizon*w.r.watch.Clock.Tick(), w.r.watch.Settings().Horizon)
	require.Equal(t, 2*maxHorizon*w.r.watch.Clock.Tick(), w.l.clock.Memory())
}

func TestTouchBeginsAllIdleTimeoutsAnew(t *testing.T) {
	w := newWatched(t, Config{ReadTimeout: time.Hour, WriteTimeout: time.Hour, Tick: 5 * time.Millisecond})
	for _, touch := range []func(){
		func() { handle(w.r, w.c).Touch() },
		func() { handle(w.r, w.c).Exempt(true); handle(w.r, w.c).Exempt(false) },
		func() { handle(w.r, w.c).Hold(); handle(w.r, w.c).Release() },
	} {
		before, stamp := w.facts(), w.l.clock.Stamp()
		eventually(t, "three ticks have passed", func() bool { return w.l.clock.Stamp() > stamp+3 })
		touch()
		after := w.facts()
		require.Greater(t, after.Heard.To, before.Heard.To)
		require.Greater(t, after.Wrote.To, before.Wrote.To)
	}
	stamp, before := w.l.clock.Stamp(), *w.state()
	eventually(t, "three ticks have passed", func() bool { return w.l.clock.Stamp() > stamp+3 })
	handle(w.r, w.c).Exempt(false)
	handle(w.r, w.c).Release()
	require.Equal(t, before, *w.state(), "a second call does nothing")
}

func TestPongsDoNotExtendTheGrace(t *testing.T) {
	h := pinging()
	h.IsPong = func(gnet.Conn) bool { return true }
	w := newWatched(t, Config{Heartbeat: h, MaxAge: time.Hour, MaxAgeGrace: time.Hour})
	s := w.state()
	s.Leave(w.l.clock, mono.Time(77*w.l.clock.Tick()))
	goodbye := w.facts().LastPing
	handle(w.r, w.c).Alive()
	w.c.buffered = 4
	w.r.OnTraffic(w.c)
	f := w.facts()
	require.Equal(t, goodbye, f.LastPing)
	v := w.l.LimitsOf(s).Judge(&f, &verdict.Away{}, f.Opened.To.Add(time.Hour/2))
	require.Equal(t, verdict.Wait, v.Act, "a connection in its grace gets no ping: %+v", v)
}

func TestTheNextMessageStartsANewWindow(t *testing.T) {
	w := newWatched(t, Config{MinRate: MinRate{BytesPerSecond: 1, Grace: time.Minute, Always: true}})
	began := w.facts().RatedSince
	require.NotZero(t, began, "a message is always open")
	stamp := w.l.clock.Stamp()
	eventually(t, "three ticks have passed", func() bool { return w.l.clock.Stamp() > stamp+3 })
	handle(w.r, w.c).BeginMessage()
	require.Equal(t, began, w.facts().RatedSince, "a message is open")
	handle(w.r, w.c).EndMessage()
	require.Greater(t, w.facts().RatedSince, began)
}

func TestASlowOnOpenDoesNotCountAgainstTheHandshake(t *testing.T) {
	e := newEcho()
	r := middleware(t, e, Config{HandshakeTimeout: time.Hour, Tick: 5 * time.Millisecond})
	other := newScriptedConn(newScriptedLoop(), 1)
	r.OnOpen(other) // starts the driver
	var l *loop
	e.open = func(gnet.Conn) ([]byte, gnet.Action) {
		now := r.watch.Clock.Stamp()
		eventually(t, "ten ticks have passed", func() bool { return r.watch.Clock.Stamp() > now+10 })
		return nil, gnet.None
	}
	c := newScriptedConn(other.el, 2)
	r.OnOpen(c)
	l = r.registry.Load().find(c.el)
	_, id := l.table.Find(key(c))
	f := l.Facts(id, l.At(id), l.clock.Elapsed())
	require.Less(t, r.watch.Clock.Elapsed().Sub(f.Opened.To), 25*time.Millisecond+room)
	require.Greater(t, f.Opened.To, mono.Time(50*time.Millisecond))
	r.OnClose(c, nil)
	r.OnClose(other, nil)
}

// TestALateDriverClosesNothingEarly opens a connection while the clock does not move. This happens
// when the process is stopped or its processors are busy.
func TestALateDriverClosesNothingEarly(t *testing.T) {
	r := middleware(t, newEcho(), Config{FirstByteTimeout: time.Hour, Tick: time.Millisecond})
	el := newScriptedLoop()
	first, c := newScriptedConn(el, 1), newScriptedConn(el, 2)
	r.OnOpen(first)
	r.mu.Lock() // the driver cannot move the clock
	time.Sleep(50 * time.Millisecond)
	opened := r.watch.Clock.Elapsed()
	r.OnOpen(c)
	r.mu.Unlock()
	w := watched{c, r, r.registry.Load().find(el)}
	f := w.facts()
	require.GreaterOrEqual(t, f.Opened.To, opened)
	r.OnClose(c, nil)
	r.OnClose(first, nil)
}

func TestUpdateForgetsTheStateOfLimitsThatAreOff(t *testing.T) {
	h := pinging()
	w := newWatched(t, Config{Heartbeat: h})
	before := w.facts()
	w.state().Ping(w.l.clock, &before, w.l.clock.Elapsed().Add(time.Minute)) // after any read
	require.NoError(t, w.r.Update(to(Config{ReadTimeout: time.Hour, Heartbeat: h})))
	w.follow()
	require.Equal(t, 1, w.facts().Missed)
	require.NoError(t, w.r.Update(to(Config{ReadTimeout: time.Hour})))
	w.follow()
	require.Zero(t, w.facts().Missed)
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
	s := newHandSite(t, &reader{}, Config{FirstByteTimeout: 500 * time.Millisecond, OutageGrace: -1})
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
