package idle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/coarse"
)

func TestUpdateFromObservingToEnforcing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: limitOf, ObserveOnly: true}, nil)
	dial(t, s.addr)
	eventually(t, "the verdict is counted", func() bool { return s.reaper.Stats().Observed.Of(ReadIdle) == 1 })
	s.update(t, Config{ReadTimeout: limitOf})
	eventually(t, "the silent connection is reaped", func() bool { return s.reaper.Connections() == 0 })
}

func TestUpdateWithoutMaxAgeDuringTheGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour, MaxAge: limitOf, MaxAgeGrace: time.Hour}, nil)
	dial(t, s.addr)
	eventually(t, "the goodbye is sent", func() bool {
		all, err := list(t.Context(), s.reaper, Oldest, 1)
		return err == nil && len(all) == 1 && all[0].State == StateLeaving
	})
	s.update(t, Config{ReadTimeout: time.Hour})
	time.Sleep(2 * limitOf)
	require.Empty(t, s.reasons(), "max age is off, so the connection stays open")
}

func TestUpdateWithoutMinRateAlways(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{ReadTimeout: time.Hour, MinRate: MinRate{BytesPerSecond: 10, Window: limitOf, Always: true}}, nil)
	c := dial(t, s.addr)
	sendEvery(t, c, 10*time.Millisecond)
	time.Sleep(2 * limitOf)
	s.update(t, Config{ReadTimeout: time.Hour, MinRate: MinRate{BytesPerSecond: 1000000, Window: limitOf}})
	time.Sleep(5 * limitOf)
	require.Empty(t, s.reasons(), "no message is open")
}

// block keeps the loop busy with a task. The task of the Reaper then runs before the sockets are
// read.
func block(gc gnet.Conn, d time.Duration) {
	_ = gc.EventLoop().Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error { time.Sleep(d); return nil }))
}

func TestAMessageThatWaitsUnreadIsNotSlow(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{MinRate: MinRate{BytesPerSecond: 100, Window: time.Second}}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
		s.traffic = func(c gnet.Conn) gnet.Action {
			b, _ := c.Next(-1)
			if bytes.Contains(b, []byte("begin")) {
				handle(s.reaper, c).BeginMessage()
			}
			if bytes.Contains(b, []byte("end")) {
				handle(s.reaper, c).EndMessage()
			}
			return gnet.None
		}
	})
	c := dial(t, s.addr)
	gc := <-conns
	_, _ = c.Write([]byte("begin"))
	time.Sleep(200 * time.Millisecond)
	block(gc, 2*time.Second)
	_, _ = c.Write([]byte("end")) // complete 0.2 s after it began
	time.Sleep(3 * time.Second)
	require.Empty(t, s.reasons(), "the message was complete before the end of the window and waits unread")
}

func TestAHandshakeThatWaitsUnreadIsNotMissed(t *testing.T) {
	t.Parallel()
	for _, stall := range []time.Duration{3 * time.Second, 550 * time.Millisecond} {
		conns := make(chan gnet.Conn, 1)
		s := newSite(t, Config{HandshakeTimeout: time.Second, Tick: 100 * time.Millisecond}, func(s *site) {
			s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
			s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); handle(s.reaper, c).Ready(); return gnet.None }
		})
		c := dial(t, s.addr)
		gc := <-conns
		time.Sleep(700 * time.Millisecond)
		block(gc, stall)
		time.Sleep(10 * time.Millisecond)
		_, _ = c.Write([]byte("login")) // 0.7 s after accept
		time.Sleep(stall + time.Second)
		if len(s.reasons()) > 0 {
			t.Errorf("stall %v: the login, sent at 0.7 s of 1 s, waits unread, and the connection was closed: %v", stall, s.reasons())
		}
	}
}

func unixSite(t *testing.T, cfg Config, s *site) *site {
	s.reaper = middleware(t, s.echo, cfg)
	s.addr = serve(t, s.reaper, s.booted, unixAddr(t), gnet.WithNumEventLoop(1))
	return s
}

func TestAUnixPeerThatReadsIsNotStalled(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := &site{echo: newEcho()}
	s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
	unixSite(t, Config{WriteStallTimeout: time.Second, Tick: 20 * time.Millisecond}, s)
	c := dial(t, s.addr)
	gc := <-conns
	stop := time.After(5 * time.Second)
	var got atomic.Int64
	go func() { // reads 100 KB/s
		b := make([]byte, 1024)
		for {
			n, err := c.Read(b)
			got.Add(int64(n))
			if err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
loop:
	for {
		select {
		case <-stop:
			break loop
		case <-time.After(10 * time.Millisecond):
			_ = gc.AsyncWrite(make([]byte, 1200), nil) // slightly more than the peer reads
		}
	}
	require.Empty(t, s.reasons(), "the peer reads continuously: %d bytes", got.Load())
}

func TestAUnixPeerThatEchoesIsNotStalled(t *testing.T) {
	t.Parallel()
	s := &site{echo: newEcho()}
	unixSite(t, Config{WriteStallTimeout: time.Second, Tick: 20 * time.Millisecond}, s)
	c := dial(t, s.addr)
	began := time.Now()
	b := make([]byte, 1000)
	// Four messages are always in flight.
	for range 4 {
		_, _ = c.Write(b)
	}
	n := 0
	for time.Since(began) < 6*time.Second {
		time.Sleep(3 * time.Millisecond)
		if _, err := io.ReadFull(c, b); err != nil {
			break
		}
		n++
		if _, err := c.Write(b); err != nil {
			break
		}
	}
	require.Empty(t, s.reasons(), "after %v and %d echoes", time.Since(began), n)
}

func TestAWriteInOnIdleIsActivity(t *testing.T) {
	t.Parallel()
	for _, other := range []Config{{WriteTimeout: limitOf}, {AllTimeout: limitOf}} {
		var mu sync.Mutex
		var evs []Event // guarded by mu
		var e = newEcho()
		other.OnIdle = func(c gnet.Conn, ev Event) gnet.Action {
			mu.Lock()
			evs = append(evs, ev)
			mu.Unlock()
			if ev.Reason == ReadIdle {
				_, _ = c.Write([]byte("PING\n"))
			}
			return gnet.None
		}
		other.ReadTimeout, other.Tick = limitOf, tickOf
		r := middleware(t, e, other)
		addr := serve(t, r, e.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
		c := dial(t, addr)
		time.Sleep(limitOf + limitOf/2)
		c.Close()
		time.Sleep(limitOf / 4)
		mu.Lock()
		defer mu.Unlock()
		for i, ev := range evs[:len(evs)-1] { // of two events that are due together, either may come first
			if ev.Reason == ReadIdle {
				t.Errorf("the write for %v was followed by %v at once", ev.Reason, evs[i+1].Reason)
			}
		}
	}
}

func TestUpdateWithoutHeartbeatsAndBack(t *testing.T) {
	t.Parallel()
	h := pinging()
	h.MaxMissed = 1
	h.IsPong = func(c gnet.Conn) bool { b, _ := c.Peek(-1); return bytes.Contains(b, []byte("PONG")) }
	s := newSite(t, Config{ReadTimeout: time.Hour, Heartbeat: h}, nil)
	c := dial(t, s.addr)
	b := make([]byte, 64)
	_, err := c.Read(b) // PING
	require.NoError(t, err)
	s.update(t, Config{ReadTimeout: time.Hour})
	_, err = c.Write([]byte("PONG\n"))
	require.NoError(t, err)
	time.Sleep(limitOf)
	s.update(t, Config{ReadTimeout: time.Hour, Heartbeat: h})
	answer(t, c, "PONG\n")
	time.Sleep(3 * limitOf)
	require.Empty(t, s.reasons(), "each ping was answered")
}

func TestUpdateOfTCPKeepAlive(t *testing.T) {
	t.Parallel()
	conns := make(chan gnet.Conn, 1)
	s := newSite(t, Config{ReadTimeout: time.Hour}, func(s *site) {
		s.open = func(c gnet.Conn) ([]byte, gnet.Action) { conns <- c; return nil, gnet.None }
	})
	dial(t, s.addr)
	gc := <-conns
	s.update(t, Config{ReadTimeout: time.Hour, TCPKeepAlive: 30 * time.Second})
	v, err := unix.GetsockoptInt(gc.Fd(), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	require.NoError(t, err)
	require.Equal(t, 30000, v)
}

func TestAPingBehindOutputIsNotMissed(t *testing.T) {
	t.Parallel()
	h := pinging()
	s := newSite(t, Config{Heartbeat: h}, func(s *site) { s.open = flood(32 << 20) })
	c := dialSmall(t, s.addr)
	got := 0
	stop := time.Now().Add(4 * time.Second)
	b := make([]byte, 8<<10)
	for time.Now().Before(stop) {
		n, err := c.Read(b)
		got += n
		if err != nil {
			break
		}
		if bytes.Contains(b[:n], []byte("PING")) {
			_, _ = c.Write([]byte("PONG\n"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	require.Empty(t, s.reasons(), "the peer has read %d bytes and acknowledges them, but the ping is behind more output", got)
}

func TestNoGoodbyeBeforeAReset(t *testing.T) {
	t.Parallel()
	n := make(chan Reason, 9)
	s := newSite(t, Config{MaxAge: limitOf, MaxAgeGrace: limitOf, Reset: []Reason{MaxAge}, Goodbye: func(_ gnet.Conn, r *ReapError) []byte {
		n <- r.Reason
		return nil
	}}, nil)
	dial(t, s.addr)
	s.reason(t, 0)
	require.Empty(t, n, "a connection that is reset gets no goodbye")
}

func TestKeepClosedChanges(t *testing.T) {
	var c closedRing
	l := &loop{clock: new(coarse.Clock), set: &settings{}}
	l.clock.Init(time.Millisecond, time.Second, coarse.Real())
	keep := func(k int) { l.set = &settings{cfg: Config{KeepClosed: k}} }
	a := &addrConn{}
	s := &state{}
	s.conn = a
	add := func(i int) { c.add(l, s, &ReapError{Bytes: i}) }
	keep(2)
	add(1)
	add(2)
	add(3)
	keep(4)
	add(4)
	add(5)
	add(6)
	add(7)
	var got []int
	for _, o := range newest(c.read(), 4) {
		got = append(got, o.Err.Bytes)
	}
	require.Equal(t, []int{7, 6, 5, 4}, got)
}

type addrConn struct{ scriptedConn }

func (*addrConn) RemoteAddr() net.Addr { return nil }

func TestIsPongMayClose(t *testing.T) {
	h := pinging()
	var closed atomic.Bool
	h.IsPong = func(c gnet.Conn) bool { _ = c.EventLoop().Close(c); return true }
	after := make(chan bool, 9)
	s := newSite(t, Config{Heartbeat: h}, func(s *site) {
		s.closed = func(gnet.Conn, error) gnet.Action { closed.Store(true); return gnet.None }
		s.traffic = func(c gnet.Conn) gnet.Action { after <- closed.Load(); return gnet.None }
	})
	c := dial(t, s.addr)
	_, _ = c.Write([]byte("x"))
	select {
	case a := <-after:
		require.False(t, a, "OnTraffic after OnClose")
	case <-time.After(time.Second):
	}
}

func TestAUnixConnectionIsNotCheckedMoreOften(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"unix", "tcp"} {
		s := &site{echo: newEcho()}
		s.traffic = func(c gnet.Conn) gnet.Action {
			_, _ = c.Discard(-1)
			handle(s.reaper, c).BeginMessage()
			handle(s.reaper, c).EndMessage()
			return gnet.None
		}
		cfg := Config{WriteTimeout: limitOf, Tick: 10 * time.Millisecond}
		var c net.Conn
		if addr == "unix" {
			unixSite(t, cfg, s)
		} else {
			s.reaper = middleware(t, s.echo, cfg)
			s.addr = serve(t, s.reaper, s.booted, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1))
		}
		c = dial(t, s.addr)
		for range 300 {
			_, _ = c.Write([]byte("x"))
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, s.reaper.Stats().Rescheduled, uint64(60), "%s: checks in 3 s", addr)
	}
}

func (*scriptedConn) RemoteAddr() net.Addr { return nil }

func TestAnAbandonedInspectionChangesNothing(t *testing.T) {
	r := middleware(t, &sink{}, Config{ReadTimeout: time.Hour})
	el := newScriptedLoop()
	a, b := newScriptedConn(el, 1), newScriptedConn(el, 2)
	r.OnOpen(a)
	shown := make(chan []ConnInfo)
	go func() {
		all, err := list(t.Context(), r, LongestIdle, 10)
		assert.NoError(t, err)
		shown <- all
	}()
	task := <-el.tasks
	r.OnClose(a, nil) // the loop has no connections any more, and gnet may have dropped the task
	all := <-shown
	require.Empty(t, all)
	r.OnOpen(b) // gnet has not dropped the task
	l := r.registry.Load().find(el)
	l.stop = errors.New("the task must not overwrite this")
	require.NoError(t, task.Run(t.Context()))
	require.Error(t, l.stop, "the inspection has ended before its task")
	r.OnClose(b, nil)
}
