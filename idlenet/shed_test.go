package idlenet

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

func TestTheLongestSilentConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{MaxConnections: 3, ShedProtect: 50 * time.Millisecond})
	silent, first := e.open()
	time.Sleep(50 * time.Millisecond)
	busy := e.dial()
	e.accepted()
	held, heldConn := e.open()
	e.conn(heldConn).Hold()
	time.Sleep(100 * time.Millisecond)
	say(t, busy, "hello")
	say(t, e.dial(), "hello")
	require.ErrorIs(t, e.Reason(first), reap.Shed)
	_, err := silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	say(t, busy, "I stay")
	say(t, held, "I stay")
	require.EqualValues(t, 1, e.Stats().Reaped[reap.Shed])
	require.Zero(t, e.Stats().Refused)
}

func TestANewConnectionIsRefusedIfNoneMayEnd(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	e := newEcho(t, Config{MaxConnections: 2, ShedProtect: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	a, b := e.dial(), e.dial()
	say(t, a, "hello")
	say(t, b, "hello")
	refused := sockets.Dial(t, "tcp", e.Addr().String())
	_, err := refused.Read(make([]byte, 1))
	require.Error(t, err)
	say(t, a, "I stay")
	say(t, b, "I stay")
	require.EqualValues(t, 1, e.Stats().Refused)
	eventually(t, "it is logged", func() bool {
		return strings.Contains(log.String(), `msg="connections were rejected" last="all connections that MaxConnections allows are in use"`)
	})
	require.Zero(t, e.Stats().Reaped[reap.Shed])
	require.Equal(t, 2, e.Connections())
	require.NoError(t, e.Update(func(cfg *Config) { cfg.ObserveOnly = true }))
	say(t, e.dial(), "hello")
	require.EqualValues(t, 1, e.Stats().Observed[reap.Shed], "it would have been refused")
}

func TestOfASampleTheLongestSilentIsShed(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 3, ShedProtect: 100 * time.Millisecond})
	w.listen(1)
	all := []*simLife{w.accept(), w.accept(), w.accept()}
	for _, l := range []*simLife{all[0], all[2]} {
		w.Sleep(time.Second)
		l.Sock.Peer.Send(1)
	}
	w.Sleep(time.Second)
	w.accept()
	w.Poll() // it ends before the next tick
	w.Sleep(2 * time.Millisecond)
	require.ErrorIs(t, all[1].Ended, reap.Shed)
	require.InDelta(t, 3*time.Second, all[1].Ended.Lasted, float64(w.Slack()))
}

// TestTheMostSilentOfAllShardsEnds has fewer connections than shards, and one above the limit each
// second.
func TestTheMostSilentOfAllShardsEnds(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 3, ShedProtect: 100 * time.Millisecond})
	w.listen(8)
	var all []*simLife
	for n := range 20 {
		all = append(all, w.accept())
		w.Sleep(w.Slack())
		all[n].Sock.Peer.Send(1)
		w.Sleep(time.Second)
		for i, l := range all {
			require.Equal(t, i+3 <= n, l.Ended != nil, "connection %d of %d", i, n)
		}
	}
	require.Zero(t, w.N["refused"])
}

// TestConnectionsThatWereShedTakeNoPlaceInASample sheds more connections in the time for which
// reasons are kept than a sample has.
func TestConnectionsThatWereShedTakeNoPlaceInASample(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 3, ShedProtect: 20 * time.Millisecond})
	w.listen(1)
	for range 10 * shedSample {
		w.accept()
		w.Sleep(w.Slack())
	}
	require.Zero(t, w.N["refused"])
	require.Greater(t, len(w.ln.shards[0].reasons.all), shedSample)
}

// TestASamplePassesFreePlaces has few connections where there were many.
func TestASamplePassesFreePlaces(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Hour, ShedProtect: 20 * time.Millisecond})
	w.listen(1)
	var all []*simLife
	for range 300 * shedSample {
		all = append(all, w.accept())
	}
	for _, l := range all[3:] {
		l.serverCloses()
	}
	w.Sleep(time.Minute)
	require.Equal(t, 3, w.ln.Connections())
	require.NoError(t, w.ln.Update(func(cfg *Config) { cfg.MaxConnections = 3 }))
	w.accept()
	require.Zero(t, w.N["refused"])
}

// TestReasonsAreKeptForAMinuteAndNotAboveANumber fills the reasons of a shard, and uses one of the
// addresses again.
func TestReasonsAreKeptForAMinuteAndNotAboveANumber(t *testing.T) {
	r := reasons{most: 100, all: make(map[uintptr]*keptReason)}
	var conns []*conn
	for range r.most + 1 {
		c := &conn{Front: front{kept: &net.TCPConn{}}}
		conns = append(conns, c)
		r.add(c, &ReapError{}, 1)
	}
	require.Nil(t, r.of(address(conns[0].Front.own())))
	require.NotNil(t, r.of(address(conns[1].Front.own())))
	later := &ReapError{}
	r.add(conns[2], later, 2)
	oldest := &r.order[0]
	require.True(t, r.expire(mono.Time(1).Add(reasonKept)))
	require.Nil(t, r.of(address(conns[3].Front.own())))
	require.Same(t, later, r.of(address(conns[2].Front.own())))
	require.False(t, r.expire(mono.Time(2).Add(reasonKept)))
	require.Empty(t, r.all)
	require.Nil(t, *oldest, "no memory is kept")
}

// TestAChosenConnectionMayStillStay changes the connection that is to make room.
func TestAChosenConnectionMayStillStay(t *testing.T) {
	for _, change := range []func(*simLife){
		func(l *simLife) { l.Hold() }, func(l *simLife) { send(l) }, (*simLife).serverCloses,
		func(l *simLife) { require.NoError(t, l.w.ln.Forget(l.c)) },
		func(l *simLife) { l.w.ln.conn(l.c).Exempt(true); l.w.Sleep(2 * time.Second) },
		func(l *simLife) { l.serverCloses(); l.w.Sleep(time.Second); l.w.accept(); l.w.Sleep(2 * time.Second) },
	} {
		w := newQuietWorld(t, Config{ReadTimeout: time.Hour})
		w.listen(1)
		l := w.accept()
		w.Sleep(3 * time.Second)
		victim := w.ln.shards[0].mostSilent(1, 1, time.Second)
		change(l)
		w.Sleep(time.Millisecond)
		require.False(t, victim.shed(time.Second))
	}
}

// TestEachConnectionIsSampled has one silent connection among more than a sample of busy ones.
func TestEachConnectionIsSampled(t *testing.T) {
	const n = shedSample + 2
	for silent := range n {
		w := newQuietWorld(t, Config{MaxConnections: n, ShedProtect: time.Second})
		w.listen(1)
		var all []*simLife
		for range n {
			all = append(all, w.accept())
		}
		w.Sleep(time.Minute)
		for i, l := range all {
			if i != silent {
				l.Sock.Peer.Send(1)
			}
		}
		w.Sleep(w.Slack())
		w.accept() // takes two samples, if the first one has none
		w.Sleep(w.Slack())
		require.NotNil(t, all[silent].Ended, "connection %d", silent)
		require.Equal(t, reap.Shed, all[silent].Ended.Reason)
	}
}

// TestEndedConnectionsTakeNoRoom counts connections that have ended and those that are closed.
func TestEndedConnectionsTakeNoRoom(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 2, ShedProtect: time.Hour})
	ended := w.accept()
	w.accept()
	ended.KickedAt = w.Now
	require.NoError(t, w.ln.Kick(t.Context(), w.ln.conn(ended.c).ID()))
	w.Poll()
	w.Sleep(2 * time.Millisecond)
	require.NotNil(t, ended.Ended, "before the next tick")
	w.accept()
	require.Zero(t, w.N["refused"])
	ended.serverCloses()
	w.Sleep(4 * w.Slack()) // it is checked after twice the time since its end
	require.Equal(t, 2, w.ln.Connections())
	w.accept()
	require.Equal(t, 1, w.N["refused"])
	w.Sleep(w.Slack())
	require.True(t, w.ln.searchAll())
	require.False(t, w.ln.searchAll(), "once in a tick")
}

func TestARefusedConnectionFreesItsPlaceOfItsSource(t *testing.T) {
	w := newQuietWorld(t, Config{MaxConnections: 1, ShedProtect: time.Hour, Sources: sourcelimit.Limits{Connections: 2}})
	c, err := w.ln.Watch(w.NewLife().Conn.(*simLife).conn) // it has no place of a source
	require.NoError(t, err)
	for range 3 {
		w.accept()
	}
	require.Equal(t, 3, w.N["refused"])
	w.ln.ConnState(c, http.StateClosed)
	w.accept()
	require.Equal(t, 3, w.N["refused"])
}

// A proxied is a socket that tells the address of a PROXY header, once it has one.
type proxied struct {
	*net.TCPConn
	told atomic.Pointer[net.TCPAddr]
}

func (p *proxied) RemoteAddr() net.Addr {
	if a := p.told.Load(); a != nil {
		return a
	}
	return p.TCPConn.RemoteAddr()
}

// TestASourceIsTheOneAtTheBeginning changes the address that a socket tells.
func TestASourceIsTheOneAtTheBeginning(t *testing.T) {
	t.Parallel()
	inner := wrapped{sockets.Listen(t, "tcp", "127.0.0.1:0"), func(c net.Conn) net.Conn { return &proxied{TCPConn: c.(*net.TCPConn)} }}
	e := serveEcho(t, inner, Config{ReadTimeout: time.Minute, Sources: sourcelimit.Limits{Connections: 1}})
	for range 3 {
		client, c := e.open()
		c.Conn.(*proxied).told.Store(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})
		require.NoError(t, client.Close())
		eventually(t, "it is closed", func() bool { return e.Connections() == 0 })
	}
}

// A pipe is a connection that is no socket.
type pipe struct{ net.Conn }

func (pipe) RemoteAddr() net.Addr { return sim.Addrs[0] }
func (pipe) Close() error         { return nil }

// TestAPlaceOfASourceIsNotLost refuses connections for the rate of all, and accepts some that are
// not watched.
func TestAPlaceOfASourceIsNotLost(t *testing.T) {
	ln := newQuietWorld(t, Config{ReadTimeout: time.Hour, AcceptRate: 1, Sources: sourcelimit.Limits{Connections: 3}}).ln
	admitted := 0
	for range 10 {
		if ln.admit(pipe{}, nil) {
			admitted++
		}
	}
	require.Equal(t, 2, admitted, "twice the rate at once")
	require.EqualValues(t, 8, ln.Stats().RefusedByRate)
	ln.rate.SetLimit(rate.Inf)
	for range 3 {
		require.True(t, ln.admit(pipe{}, nil))
		_, err := ln.add(pipe{}, 0)
		require.ErrorContains(t, err, "is not a socket")
	}
	require.True(t, ln.admit(pipe{}, nil))
	require.False(t, ln.admit(pipe{}, nil))
}

// TestAPlaceIsGivenBackOnce ends a connection, which the server closes, and of which the reason is
// dropped a minute later.
func TestAPlaceIsGivenBackOnce(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second, Sources: sourcelimit.Limits{Connections: 2}})
	w.listen(1)
	first, ended := w.accept(), w.accept()
	for range 60 {
		w.Sleep(100 * time.Millisecond)
		first.Sock.Peer.Send(1)
	}
	require.NotNil(t, ended.Ended)
	ended.serverCloses()
	for range 1000 {
		w.Sleep(100 * time.Millisecond)
		first.Sock.Peer.Send(1)
	}
	w.accept()
	require.Zero(t, w.N["refused"])
	w.next = w.NewLife().Conn.(*simLife).conn
	_, err := w.ln.Accept()
	require.ErrorIs(t, err, io.EOF, "the connection is refused, and no other one waits")
}

func TestADialledConnectionHasNoPlaceOfASource(t *testing.T) {
	w := newQuietWorld(t, Config{Sources: sourcelimit.Limits{Connections: 2}})
	w.Sleep(w.Slack())
	w.accept().serverCloses()
	w.accept()
	w.accept()
	require.Zero(t, w.N["refused"], "a closed connection has none")
	dialled := w.NewLife().Conn.(*simLife)
	c, err := w.ln.Watch(dialled.conn)
	require.NoError(t, err)
	w.ln.ConnState(c, http.StateClosed)
	require.Equal(t, 2, w.ln.Connections())
	w.next = w.NewLife().Conn.(*simLife).conn
	_, err = w.ln.Accept()
	require.ErrorIs(t, err, io.EOF, "the connection is refused, and no other one waits")
}

// TestNoConnectionIsShedWithinShedProtect has a kernel that rounds the age of a byte up, from 94 to
// 100 ms.
func TestNoConnectionIsShedWithinShedProtect(t *testing.T) {
	const ms = time.Millisecond
	w := newQuietWorld(t, Config{MaxConnections: 1, ShedProtect: 100 * ms})
	w.Jiffy = 10 * ms
	l := w.accept()
	w.Sleep(2*time.Second + 8*ms - w.Now)
	l.Sock.Peer.Send(1)
	w.Sleep(95 * ms)
	require.Equal(t, 94*ms, (w.Now - l.LastByte()).Round(ms))
	w.accept()
	require.Equal(t, 1, w.N["refused"], "the connection is protected")
	w.Sleep(100 * ms)
	w.accept()
	w.Sleep(w.Slack())
	require.Equal(t, 1, w.N["refused"])
	require.ErrorIs(t, l.Ended, reap.Shed)
}

// TestUnreadBytesProtectFromShedding has a server that does not read: it is slow, not its peer.
func TestUnreadBytesProtectFromShedding(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Minute, MaxConnections: 1, ShedProtect: 50 * time.Millisecond})
	l := w.accept()
	l.reading = false // the server does not read
	l.Sock.Peer.Send(1)
	w.Sleep(400 * time.Millisecond)
	w.accept()
	require.Nil(t, l.Ended)
	require.EqualValues(t, 1, w.ln.Stats().Refused)
}

// TestNewConnectionsWaitForRoom fills a Listener with connections that may not end.
func TestNewConnectionsWaitForRoom(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: time.Hour, MaxConnections: 1, WaitForRoom: true})
	first := e.dial()
	e.conn(e.accepted()).Hold()
	second := e.dial()
	_, err := io.WriteString(second, "beat")
	require.NoError(t, err)
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, 1, e.Connections())
	require.Zero(t, e.Stats().Refused)
	require.NoError(t, first.Close())
	b := make([]byte, 4)
	_, err = io.ReadFull(second, b) // it is served now
	require.NoError(t, err)
	require.Equal(t, "beat", string(b))

	e.conn(e.accepted()).Hold()
	third := e.dial()
	time.Sleep(300 * time.Millisecond)
	closed := &Listener{Reaper: e.Reaper}
	closed.closed.Store(true)
	waited := make(chan bool, 1)
	go func() { waited <- closed.awaitRoom() }()
	require.False(t, receive(t, waited), "a closed Listener waits for none")
	require.NoError(t, e.Update(func(cfg *Config) { cfg.WaitForRoom = false }))
	_, err = third.Read(b)
	require.Error(t, err, "it is closed")

	require.NoError(t, e.Update(func(cfg *Config) { cfg.WaitForRoom = true }))
	fourth := e.dial()
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, e.Drain(time.Hour, time.Hour))
	_, err = fourth.Read(b)
	require.Error(t, err, "a drain accepts none")
}
