package idlenet

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

// newBare returns a Reaper without a listener.
func newBare(t *testing.T, cfg Config) *Reaper {
	r, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Drain(0, 0))
		eventually(t, "no connection is open", func() bool { return r.Connections() == 0 })
		require.True(t, r.listening.CompareAndSwap(1, 0), "its goroutine keeps reasons for a minute")
		r.watch.Wake()
		requireNothingKept(t, r)
	})
	return r
}

// tcpPair returns both ends of a connection.
func tcpPair(t *testing.T) (client, conn net.Conn) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	client = sockets.Dial(t, "tcp", inner.Addr().String())
	conn, err := inner.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = client.Close(), conn.Close() })
	return client, conn
}

func TestListenersShareTheLimitsOfAReaper(t *testing.T) {
	r := newBare(t, Config{ReadTimeout: time.Hour, MaxConnections: 2, ShedProtect: time.Hour})
	var listeners []*Listener
	for range 2 {
		inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
		ln, err := r.Listen(inner)
		require.NoError(t, err)
		defer ln.Close()
		listeners = append(listeners, ln)
	}
	for _, ln := range listeners {
		sockets.Dial(t, "tcp", ln.Addr().String())
		c, err := ln.Accept()
		require.NoError(t, err)
		defer c.Close()
	}
	_, extra := tcpPair(t)
	_, err := r.Admit(extra)
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, 2, r.Connections())
	require.EqualValues(t, 1, r.Stats().Refused)
	require.Equal(t, 2, listeners[1].Connections())

	_, err = r.Listen(nil)
	require.EqualError(t, err, "idlenet: the listener is nil: pass the net.Listener to wrap")
	_, err = r.Listen(listenUnix(t))
	require.ErrorContains(t, err, "idlenet: ReadTimeout is set, but the kernel tells only for TCP on Linux")
	_, err = New(Config{})
	require.ErrorContains(t, err, "idlenet: ")
}

// TestAnInnerListenerIsClosedByItsOwner: the goroutine does not stay for the reasons then.
func TestAnInnerListenerIsClosedByItsOwner(t *testing.T) {
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	ln, err := Listen(inner, Config{ReadTimeout: 200 * time.Millisecond})
	require.NoError(t, err)
	sockets.Dial(t, "tcp", ln.Addr().String())
	c, err := ln.Accept()
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.Close())
	require.NoError(t, inner.Close())
	_, err = ln.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	requireNothingKept(t, ln.Reaper)
	require.Error(t, ln.Close())
	require.Zero(t, ln.listening.Load())
}

func TestAdmit(t *testing.T) {
	r := newBare(t, Config{ReadTimeout: 300 * time.Millisecond, Sources: sourcelimit.Limits{Connections: 2}})
	_, c := tcpPair(t)
	same, err := r.Admit(c)
	require.NoError(t, err)
	require.Equal(t, c, same)
	require.True(t, r.admit(c, nil))
	_, err = r.add(c, 0) // an Accept at the same time
	require.Equal(t, errWatched, err)
	require.True(t, r.admit(c, nil), "its second place is free again")
	_, err = r.Admit(c)
	require.EqualError(t, err, "idlenet: the connection is watched already")
	_, other := tcpPair(t)
	_, err = r.Admit(other)
	require.ErrorIs(t, err, ErrRefused)
	_, err = r.Watch(other)
	require.NoError(t, err, "it counts for no source")
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	_, err = r.Admit(a)
	require.ErrorContains(t, err, "is not a socket")
	require.ErrorContains(t, errNoSocket(nil), "the connection is nil")
	_, closed := tcpPair(t)
	require.NoError(t, closed.Close())
	_, err = r.Watch(closed)
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = r.Admit(new(net.TCPConn))
	require.ErrorIs(t, err, net.ErrClosed)
	eventually(t, "they end", func() bool { return r.Reason(c) != nil && r.Reason(other) != nil })
}

// TestAnAnswerOfOnIdleIsForItsConnection has an engine that closes the connection in OnIdle, and
// uses the object for the next one.
func TestAnAnswerOfOnIdleIsForItsConnection(t *testing.T) {
	var r *Reaper
	events := make(chan Event, 10)
	r = newBare(t, Config{ReadTimeout: 200 * time.Millisecond, OnIdle: func(c net.Conn, ev Event) Action {
		defer func() { events <- ev }()
		if len(events) > 0 {
			return Keep
		}
		assert.NoError(t, r.Forget(c))
		_, err := r.Admit(c)
		assert.NoError(t, err)
		return Close
	}})
	_, c := tcpPair(t)
	_, err := r.Admit(c)
	require.NoError(t, err)
	eventually(t, "the second one is idle", func() bool { return len(events) == 2 })
	require.Nil(t, r.Reason(c))
	require.NoError(t, r.Forget(c))
}

// TestAResetIsForItsConnection has an engine that uses the object again in OnReap.
func TestAResetIsForItsConnection(t *testing.T) {
	var r *Reaper
	again := make(chan struct{}, 1)
	r = newBare(t, Config{ReadTimeout: 200 * time.Millisecond, Reset: []Reason{reap.ReadIdle}, OnReap: func(c net.Conn, _ *ReapError) {
		if len(again) == 0 {
			assert.NoError(t, r.Forget(c))
			_, err := r.Admit(c)
			assert.NoError(t, err)
			r.conn(c).Exempt(true)
			again <- struct{}{}
		}
	}})
	closes := make(chan struct{})
	r.spawn = func(call func()) {
		go func() {
			call()
			close(closes)
		}()
	}
	client, c := tcpPair(t)
	_, err := r.Admit(c)
	require.NoError(t, err)
	eventually(t, "it is used again", func() bool { return len(again) == 1 })
	receive(t, closes)
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, r.Forget(c))
}

// TestForget has an engine that has closed a connection, and keeps the descriptor open.
func TestForget(t *testing.T) {
	r := newBare(t, Config{ReadTimeout: 300 * time.Millisecond, CloseGrace: time.Hour, Sources: sourcelimit.Limits{Connections: 1}})
	_, c := tcpPair(t)
	_, err := r.Admit(c)
	require.NoError(t, err)
	require.NoError(t, r.Forget(c))
	require.ErrorIs(t, r.Forget(c), ErrNotWatched)
	require.Zero(t, r.Connections())
	_, err = r.Admit(c)
	require.NoError(t, err, "its place among those of its source is free")
	eventually(t, "it ends", func() bool { return r.Reason(c) != nil })
	require.NoError(t, r.Forget(c))
	require.Zero(t, r.Connections())
	require.ErrorIs(t, r.Reason(c), reap.ReadIdle, "the reason is kept")
	require.EqualValues(t, 1, r.Stats().ClosedByHandler)
}

func TestConnIsTheHandleOfAConnection(t *testing.T) {
	t.Parallel()
	r := newBare(t, Config{ReadTimeout: 300 * time.Millisecond})
	_, c := tcpPair(t)
	_, err := r.Conn(c)
	require.ErrorIs(t, err, ErrNotWatched)
	_, err = r.Conn(nil)
	require.ErrorContains(t, err, "is not a socket")
	_, err = r.Admit(c)
	require.NoError(t, err)
	conn, err := r.Conn(c)
	require.NoError(t, err)

	conn.Exempt(true)
	conn.SetRemote(&net.IPAddr{IP: net.IPv4(192, 0, 2, 1)})
	found, err := r.Inspect(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, conn.ID(), found.Connections[0].ID)
	require.Equal(t, "192.0.2.1", found.Connections[0].Remote.String())
	conn.SetRemote(nil)
	found, err = r.Inspect(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, c.RemoteAddr(), found.Connections[0].Remote)
	time.Sleep(600 * time.Millisecond)
	require.Nil(t, r.Reason(c), "no limit applies")
	conn.Exempt(false)
	require.Nil(t, r.Reason(c), "its timeouts begin again")
	eventually(t, "it ends", func() bool { return r.Reason(c) != nil })
}

// TestForgetInOnReap has an engine that calls its close function while the connection ends.
func TestForgetInOnReap(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second, OnReap: func(c net.Conn, _ *ReapError) {}})
	cfg := w.ln.Config()
	cfg.OnReap = func(c net.Conn, reason *ReapError) {
		w.onReap(c, reason)
		w.lifeOf(c).serverCloses()
		require.NoError(t, w.ln.Forget(c))
		require.ErrorIs(t, w.ln.Forget(c), ErrNotWatched)
	}
	w.change(t, func(now *Config) { *now = cfg })
	l := w.accept()
	w.Sleep(time.Second + w.Slack())
	require.Zero(t, w.ln.Connections())
	require.ErrorIs(t, w.ln.Reason(l.c), reap.ReadIdle)
	w.Sleep(time.Minute + w.Slack())
	w.checkEmpty()
}

func TestAConnectionIsAdmittedOnce(t *testing.T) {
	r := newBare(t, Config{ReadTimeout: 300 * time.Millisecond})
	for range 100 {
		_, c := tcpPair(t)
		var admitted atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := r.Admit(c); err == nil {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, admitted.Load())
		require.Equal(t, 1, r.Connections())
		require.NoError(t, r.Forget(c))
	}
	_, c := tcpPair(t)
	_, err := r.Admit(c)
	require.NoError(t, err)
	eventually(t, "it ends", func() bool { return r.Reason(c) != nil })
	require.NoError(t, r.Forget(c))
	_, err = r.Admit(c)
	require.NoError(t, err, "its engine uses the object again")
	require.NoError(t, r.Forget(c))
	require.Nil(t, r.Reason(c))
}

func TestUpdateKnowsTheSocketsOfAdmit(t *testing.T) {
	r := newBare(t, Config{MaxAge: time.Hour})
	inner := listenUnix(t)
	sockets.Dial(t, "unix", inner.Addr().String())
	c, err := inner.Accept()
	require.NoError(t, err)
	defer c.Close()
	_, err = r.Admit(c)
	require.NoError(t, err)
	require.ErrorContains(t, r.Update(func(cfg *Config) { cfg.ReadTimeout = time.Minute }), "ReadTimeout is set, but the kernel tells only for TCP")
}

// A headed is a connection with a PROXY header that has not come yet.
type headed struct{ net.Conn }

func (c headed) NetConn() net.Conn    { return c.Conn }
func (c headed) RemoteAddr() net.Addr { panic("waits for the header") }

func TestNothingWaitsForAPROXYHeader(t *testing.T) {
	r := newBare(t, Config{ReadTimeout: 200 * time.Millisecond, KeepClosed: 1, Sources: sourcelimit.Limits{Connections: 1}})
	_, c := tcpPair(t)
	_, err := r.Admit(headed{c})
	require.NoError(t, err)
	found, err := r.Inspect(t.Context(), Query{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, c.RemoteAddr(), found.Connections[0].Remote)
	eventually(t, "it ends", func() bool { return r.Reason(c) != nil })
}

// TestAConnOfAClosedConnectionDoesNothing calls its methods when its place belongs to another one.
func TestAConnOfAClosedConnectionDoesNothing(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second})
	old := w.accept()
	stale := w.ln.conn(old.c)
	id := stale.ID()
	require.NotEmpty(t, id)
	old.serverCloses()
	require.ErrorIs(t, w.ln.Kick(t.Context(), id), ErrNotWatched)
	w.Sleep(10 * time.Second)
	next := w.accept()
	require.NotEmpty(t, w.ln.conn(next.c).ID())
	for _, c := range []Conn{stale, {}} {
		c.Hold()
		c.Exempt(true)
		c.Ready()
		c.Touch()
		c.BeginMessage()
		c.EndMessage()
		c.Release()
		c.SetGroup("x")
		c.SetRemote(&net.TCPAddr{})
		require.ErrorIs(t, c.SetLimits(ConnLimits{ReadTimeout: time.Hour}), ErrNotWatched)
		require.Empty(t, c.ID())
	}
	w.Sleep(time.Second + w.Slack())
	require.ErrorIs(t, w.ln.Reason(next.c), reap.ReadIdle)
}

// newQuietWorld builds a world without faults and without connections, for a test of one promise.
func newQuietWorld(t testing.TB, cfg Config) *simWorld {
	w := &simWorld{quiet: true, cfg: cfg, late: 100 * time.Microsecond, work: time.Millisecond, addr: sim.Addrs[0]}
	if w.cfg.OnReap == nil {
		w.cfg.OnReap = w.onReap
	}
	w.BuildQuiet(w, simTraits)
	w.listen(2)
	t.Cleanup(func() { require.False(t, w.Failed(), w.Failure()) })
	return w
}

// change changes the Config of a quiet world.
func (w *simWorld) change(t testing.TB, edit func(*Config)) {
	require.NoError(t, w.ln.Update(edit))
	w.cfg = w.ln.Config()
	w.Changed(&w.cfg)
}

// accept accepts a connection of a peer that sends only what the test sends. Its server reads at
// once, and does not close it.
func (w *simWorld) accept() *simLife {
	l := w.NewSilentLife().Conn.(*simLife)
	l.simManners = simManners{deaf: true}
	l.accept()
	return l
}

// acceptAll accepts n connections.
func (w *simWorld) acceptAll(n int) (all []*simLife) {
	for range n {
		all = append(all, w.accept())
	}
	return all
}

// send sends a byte on connections.
func send(all ...*simLife) {
	for _, l := range all {
		l.Sock.Peer.Send(1)
	}
}

// lookSoon makes the next round look at connections.
func (w *simWorld) lookSoon(all ...*simLife) {
	for _, l := range all {
		w.ln.with(l.c, func(s *shard, _ uint32, n *conn) { s.Soon(n) })
	}
}

// TestConcurrentCalls calls all methods from many goroutines, while connections come and go. It
// is for the race detector.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	length := time.Second
	if testing.Short() {
		length = 300 * time.Millisecond
	}
	e := newEcho(t, Config{
		ReadTimeout: 50 * time.Millisecond, WriteTimeout: time.Second, MaxConnections: 100, ShedProtect: time.Millisecond,
		KeepClosed: 10, HandshakeTimeout: 5 * time.Second, MinRate: MinRate{BytesPerSecond: 1},
		Heartbeat: Heartbeat{Interval: 20 * time.Millisecond, Ping: func(c net.Conn) { _, _ = c.Write([]byte("?")) }},
		OnIdle:    func(_ net.Conn, ev Event) Action { return Action(rand.IntN(2)) },
	})
	var group sync.WaitGroup
	stop := time.Now().Add(length)
	loop := func(do func()) {
		group.Go(func() {
			for time.Now().Before(stop) {
				do()
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	some := func() *served {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.conns) == 0 {
			return &served{new(net.TCPConn)}
		}
		return e.conns[max(len(e.conns)-1-rand.IntN(50), 0)]
	}
	for range 4 {
		loop(func() {
			if c, err := net.Dial("tcp", e.Addr().String()); err == nil {
				_, _ = c.Write([]byte("hello"))
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				_ = c.Close()
			}
		})
	}
	loop(func() { e.conn(some()).Hold() })
	loop(func() { e.conn(some()).Release(); e.conn(some()).Touch(); e.conn(some()).Ready() })
	loop(func() { e.conn(some()).BeginMessage(); e.conn(some()).EndMessage() })
	loop(func() { e.ConnState(some(), http.ConnState(rand.IntN(int(http.StateClosed)))) })
	loop(func() { _ = some().Close(); time.Sleep(time.Millisecond) })
	loop(func() { _ = e.Kick(context.Background(), e.conn(some()).ID()); time.Sleep(time.Millisecond) })
	loop(func() {
		_ = e.Update(func(cfg *Config) { cfg.ReadTimeout = time.Duration(40+rand.IntN(40)) * time.Millisecond })
		time.Sleep(time.Millisecond)
	})
	loop(func() {
		_, err := e.Inspect(context.Background(), reap.Query{Limit: 10, States: true, Sectors: 4, Closed: true})
		require.NoError(t, err)
		s := e.Stats()
		require.LessOrEqual(t, s.ClosedByHandler, s.Closed)
		_, _, _ = e.Reason(some()), e.Limits(), e.Connections()
		time.Sleep(time.Millisecond)
	})
	group.Wait()
	require.NoError(t, e.Drain(0, 0))
	eventually(t, "no connection is left", func() bool { return e.Connections() == 0 })
	s := e.Stats()
	require.Equal(t, s.Opened, s.Closed)
}
