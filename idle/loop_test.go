package idle

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	gneterrors "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// A scriptedLoop is an event loop that runs its tasks when the test calls run. Tests of tasks and
// loops without sockets use it.
type scriptedLoop struct {
	gnet.EventLoop
	tasks   chan gnet.Runnable
	refusal error // of Execute
}

func newScriptedLoop() *scriptedLoop { return &scriptedLoop{tasks: make(chan gnet.Runnable, 64)} }

func (l *scriptedLoop) Execute(_ context.Context, task gnet.Runnable) error {
	if l.refusal == nil {
		l.tasks <- task
	}
	return l.refusal
}

// run runs the next task.
func (l *scriptedLoop) run(t *testing.T) error {
	t.Helper()
	select {
	case task := <-l.tasks:
		return task.Run(t.Context())
	case <-time.After(10 * time.Second):
		t.Fatal("no task within 10 s")
		return nil
	}
}

// A scriptedConn is a fakeConn with the methods that OnOpen needs. Its descriptor is no socket.
// Tests with a scriptedLoop or a handSite use it.
type scriptedConn struct {
	fakeConn
	said string // by the last Write
}

func (*scriptedConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (*scriptedConn) RemoteAddr() net.Addr { return nil }
func (*scriptedConn) SetLinger(int) error  { return nil }

func (c *scriptedConn) Write(b []byte) (int, error) {
	c.said = string(b)
	return len(b), nil
}

func newScriptedConn(el gnet.EventLoop, number int) *scriptedConn {
	return &scriptedConn{fakeConn: fakeConn{fd: 1<<20 + number, el: el}}
}

var quickConfig = Config{ReadTimeout: 20 * time.Millisecond, Tick: 5 * time.Millisecond}

func TestNoTaskForALoopWithoutConnectionsAndOneAtATime(t *testing.T) {
	r := middleware(t, &sink{}, quickConfig)
	empty, busy := newScriptedLoop(), newScriptedLoop()
	gone, stays := newScriptedConn(empty, 1), newScriptedConn(busy, 2)
	r.OnOpen(stays)
	r.OnOpen(gone)
	r.OnClose(gone, nil)      // its entry in the wheel is still due
	early := len(empty.tasks) // on a busy machine the driver ran in between
	eventually(t, "the busy loop has a task", func() bool { return len(busy.tasks) > 0 })
	time.Sleep(10 * quickConfig.ReadTimeout)
	require.Len(t, busy.tasks, 1, "no second task before the first has run")
	require.Len(t, empty.tasks, early, "gnet may have ended this loop")
	require.NoError(t, busy.run(t))
	eventually(t, "the next task follows", func() bool { return len(busy.tasks) > 0 })
	r.OnClose(stays, nil)
}

func TestTheLastCloseWaitsForTheDriver(t *testing.T) {
	r := middleware(t, &sink{}, quickConfig)
	c := newScriptedConn(newScriptedLoop(), 1)
	for range 100 {
		r.OnOpen(c)
		d := r.driver
		r.OnClose(c, nil)
		select {
		case <-d.done:
		default:
			t.Fatal("OnClose has returned, and the driver still runs")
		}
	}
}

// TestATaskEndsWhenTheEngineIsAskedToStop has an OnIdle that asks for it, and an OnClose.
func TestATaskEndsWhenTheEngineIsAskedToStop(t *testing.T) {
	for _, onIdle := range []gnet.Action{gnet.Shutdown, gnet.Close} {
		asked := 0
		cfg := Config{ReadTimeout: time.Second, AllTimeout: time.Second, OutageGrace: -1}
		cfg.OnIdle = func(gnet.Conn, Event) gnet.Action { asked++; return onIdle }
		s := newHandSite(t, &reader{}, cfg)
		if s.open(2); onIdle == gnet.Close {
			s.el.closeErr = gneterrors.ErrEngineShutdown
		}
		for s.at < mono.Time(2*time.Second) {
			s.at = s.at.Add(s.watch.Clock.Tick())
			s.round()
		}
		require.ErrorIs(t, s.el.run(t), gneterrors.ErrEngineShutdown)
		require.Equal(t, 1, asked, "no connection is judged after the request")
	}
}

// TestStallsWithATaskBetweenThemAreTwo is the test of a fixed bug: the stalls of a loop that was
// always busy grew to one. A connection with a deadline in that stall was then kept forever.
func TestStallsWithATaskBetweenThemAreTwo(t *testing.T) {
	s := newHandSite(t, &reader{}, Config{HandshakeTimeout: time.Hour})
	l, _, _, _ := s.watched(s.open(1)[0])
	s.pass(t, time.Hour)
	ran := s.at
	for n, want := range []int{1, 1, 2} {
		if n == 2 {
			ran = s.at
			require.NoError(t, l.run(t.Context()))
		}
		s.at = s.at.Add(time.Millisecond)
		l.Outages.AddStall(s.at.Add(-time.Minute), s.at)
		require.Len(t, l.Outages.At(s.at).Loop, want, "stalls without a task between them are one")
	}
	l.Outages.AddStall(0, ran)
	require.Len(t, l.Outages.At(s.at).Loop, 2, "the stall ended before the task")
}

func TestAHandlerMayCloseOthers(t *testing.T) {
	var others []*scriptedConn
	e, s := newEcho(), (*handSite)(nil)
	e.traffic = func(c gnet.Conn) gnet.Action {
		c.(*scriptedConn).buffered = 0
		for _, o := range others {
			s.OnClose(o, nil)
		}
		return gnet.None
	}
	s = newHandSite(t, e, Config{ReadTimeout: time.Hour})
	// The few descriptors share a small piece of the table, so that records move up when others are
	// removed.
	for start := range 64 {
		var conns []*scriptedConn
		for i := range 6 {
			conns = append(conns, newScriptedConn(s.el, start+i*97))
			s.OnOpen(conns[i])
		}
		others = []*scriptedConn{conns[0], conns[2], conns[4]}
		s.pass(t, s.watch.Clock.Tick()) // all records have an older stamp
		s.receive(conns[5])
		_, record, _, _ := s.watched(conns[5])
		require.NotNil(t, record)
		require.Equal(t, s.watch.Clock.Stamp().Short(), record.Heard, "the read stamps the record at its new place")
		require.EqualValues(t, start+1, s.Stats().Reads)
		for _, c := range []*scriptedConn{conns[1], conns[3], conns[5]} {
			s.OnClose(c, nil)
		}
		require.Zero(t, s.registry.Load().loops[0].Open)
	}
}

func TestAConnectionThatWasNeverClosedIsForgotten(t *testing.T) {
	r := middleware(t, &sink{}, quickConfig)
	el := newScriptedLoop()
	old, c := newScriptedConn(el, 1), newScriptedConn(el, 1)
	r.OnOpen(old)
	r.OnOpen(c)
	require.Equal(t, 1, r.Stats().Connections)
	r.OnClose(old, nil) // late and without effect
	require.Equal(t, 1, r.Stats().Connections)

	l := r.registry.Load().find(el)
	record, _ := l.table.Find(key(c))
	record.Tag = tagOf(old) // a collision of two addresses
	r.OnClose(old, nil)
	require.Equal(t, 1, r.Stats().Connections, "a late close does not hit the next connection")
	record.Tag = tagOf(c)
	r.OnClose(c, nil)
	require.Zero(t, r.Stats().Connections)
	require.EqualValues(t, 2, r.Stats().Closed)
	require.EqualValues(t, 2, r.Stats().ClosedByHandler)
}

// TestTheRootOfADeepStack asks for the root from many calls further down.
func TestTheRootOfADeepStack(t *testing.T) {
	var below func(calls int) stackRoot
	below = func(calls int) stackRoot {
		if calls == 0 {
			return rootOfStack()
		}
		return below(calls - 1)
	}
	for calls := range 200 {
		require.Equal(t, rootOfStack(), below(calls))
	}
}

// TestAnEventOfAnUnknownLoopIsForwarded has connections that the Reaper has not seen open.
func TestAnEventOfAnUnknownLoopIsForwarded(t *testing.T) {
	e := newEcho()
	e.traffic = func(gnet.Conn) gnet.Action { return gnet.Close }
	e.closed = func(gnet.Conn, error) gnet.Action { return gnet.Shutdown }
	s := newHandSite(t, e, Config{ReadTimeout: time.Minute})
	s.open(1)
	for _, c := range []gnet.Conn{newScriptedConn(newScriptedLoop(), 1), newScriptedConn(s.el, 2)} {
		require.Equal(t, gnet.Close, s.OnTraffic(c))
		require.Equal(t, gnet.Shutdown, s.OnClose(c, nil))
	}
	require.Zero(t, s.Stats().Reads)
	require.Equal(t, 1, s.Connections())
}

func TestLoopsOfStoppedEnginesAreDropped(t *testing.T) {
	r := middleware(t, &sink{}, quickConfig)
	for range 200 {
		c := newScriptedConn(newScriptedLoop(), 1)
		r.OnOpen(c)
		r.OnClose(c, nil)
	}
	loops := len(r.registry.Load().loops)
	require.LessOrEqual(t, loops, spareLoops+1)
	require.Greater(t, loops, 1, "some are kept: a connection to each in turn needs no new ones")
	require.EqualValues(t, 200, r.Stats().Opened, "the counts of dropped loops are kept")

	el := newScriptedLoop()
	for range 100 {
		c := newScriptedConn(el, 1)
		r.OnOpen(c)
		l := r.registry.Load().find(el)
		r.OnClose(c, nil)
		require.Same(t, l, r.registry.Load().find(el), "a loop in use is kept between its connections")
	}
	require.NoError(t, r.Update(func(cfg *Config) { cfg.ReadTimeout = time.Hour }))
	c := newScriptedConn(el, 1)
	r.OnOpen(c)
	defer r.OnClose(c, nil)
	require.Equal(t, time.Hour, r.registry.Load().find(el).Set.Common.Read, "without connections it follows at the first one")
}

// TestBytesLeftInTheBufferAreNoRead calls OnTraffic without new bytes, as Wake does.
func TestBytesLeftInTheBufferAreNoRead(t *testing.T) {
	e := newEcho()
	left := 1
	e.traffic = func(c gnet.Conn) gnet.Action { c.(*scriptedConn).buffered = left; return gnet.None }
	pongs := uint64(0)
	beat := pinging()
	beat.Interval, beat.IsPong = time.Minute, func(gnet.Conn) bool { pongs++; return false }
	s := newHandSite(t, e, Config{ReadTimeout: time.Second, Heartbeat: beat, OutageGrace: -1})
	c := s.open(1)[0]
	s.pass(t, s.watch.Clock.Tick())
	s.receive(c)
	for _, left = range []int{1, 0, 0} { // Wake; the second call reads the byte
		s.pass(t, 3*s.watch.Clock.Tick())
		s.OnTraffic(c)
	}
	s.pass(t, s.watch.Clock.Tick())
	require.EqualValues(t, 1, s.Stats().Reads)
	s.receive(c)
	s.pass(t, 2*s.watch.Clock.Tick())
	require.EqualValues(t, 2, s.Stats().Reads)
	require.EqualValues(t, 2, pongs, "no pong comes without new bytes")
	s.pass(t, 2*time.Second)
	require.EqualValues(t, 1, s.Stats().Closed)
}

// A plainLayer is a layer around a connection that has a decrypted byte.
type plainLayer struct{ gnet.Conn }

func (c plainLayer) InboundBuffered() int { return 1 }
func (c plainLayer) NetConn() net.Conn    { return c.Conn }

func TestBytesLeftInALayerAreNoRead(t *testing.T) {
	e := newEcho()
	e.traffic = func(gnet.Conn) gnet.Action { return gnet.None }
	s := newHandSite(t, e, Config{ReadTimeout: time.Second})
	layer := plainLayer{s.open(1)[0]}
	for range 3 { // Wake
		s.OnTraffic(layer)
		s.pass(t, s.watch.Clock.Tick())
	}
	require.EqualValues(t, 1, s.Stats().Reads)
}
