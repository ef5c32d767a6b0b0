package idlenet

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/fair"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/sourcelimit"
)

func listenUnix(t *testing.T) net.Listener {
	if runtime.GOOS == "windows" {
		t.Skip("needs unix sockets")
	}
	return sockets.Listen(t, "unix", filepath.Join(t.TempDir(), "s"))
}

func TestUnixSocketsNeedStamp(t *testing.T) {
	inner := listenUnix(t)
	_, err := Listen(inner, Config{ReadTimeout: time.Minute, AllTimeout: time.Minute, WriteTimeout: time.Minute})
	require.ErrorContains(t, err, "ReadTimeout is set, but the kernel tells only for TCP on Linux when bytes arrived: set Config.Stamp")
	require.ErrorContains(t, err, "AllTimeout is set, but needs TCP on Linux")
	require.ErrorContains(t, err, "WriteTimeout is set, but needs TCP on Linux")
	_, err = Listen(inner, Config{MaxAge: time.Minute, HandshakeTimeout: time.Minute, WriteStallTimeout: time.Minute})
	require.NoError(t, err, "these limits need no dates")
	ln, err := Listen(inner, Config{MaxAge: time.Minute})
	require.NoError(t, err)
	require.ErrorContains(t, ln.Update(func(cfg *Config) { cfg.ReadTimeout = time.Minute }), "set Config.Stamp")
}

// TestStamp runs with both kinds of sockets: living connections stay, and silent ones end.
func TestStamp(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
			if network == "unix" {
				require.NoError(t, inner.Close())
				inner = listenUnix(t)
			}
			e := serveEcho(t, inner, Config{ReadTimeout: 500 * time.Millisecond, Stamp: true, TCPKeepAlive: time.Minute})
			_, silent := e.open()
			living, live := e.open()
			for began := time.Now(); e.Reason(silent) == nil && time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
				say(t, living, "beat")
			}
			require.NotNil(t, e.Reason(silent))
			require.ErrorIs(t, e.Reason(silent), reap.ReadIdle)
			require.Nil(t, e.Reason(live))
			require.IsType(t, &stampedConn{}, live.Conn)
		})
	}
}

// TestADescriptorThatBlocksStopsNobody has a Read that waits in the kernel, where no deadline ends
// it, and for which Close waits.
func TestADescriptorThatBlocksStopsNobody(t *testing.T) {
	t.Parallel()
	for _, reset := range [][]Reason{nil, {reap.ReadIdle}} {
		e := newEcho(t, Config{ReadTimeout: short, Reset: reset})
		client, conn := e.open()
		file, err := conn.Conn.(*net.TCPConn).File()
		require.NoError(t, err)
		file.Fd() // makes both block
		require.NoError(t, file.Close())
		say(t, client, "the next Read waits in the kernel")
		eventually(t, "it ends", func() bool { return e.Reason(conn) != nil })
		_, err = client.Read(make([]byte, 1))
		require.Error(t, err)
		_, err = e.dial().Read(make([]byte, 1))
		require.Error(t, err)
		eventually(t, "both are closed", func() bool { return e.Connections() == 0 })
	}
}

func TestConnectionsInsideTLS(t *testing.T) {
	t.Parallel()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates, InsecureSkipVerify: true}

	ln, dial := serveDeaf(t, Config{ReadTimeout: short})
	client, conn := dial()
	server := tls.Server(conn, config)
	go func() { _ = tls.Client(client, config).Handshake() }()
	require.NoError(t, server.Handshake())
	require.Equal(t, ln.conn(conn).ID(), ln.conn(server).ID())
	ln.conn(server).Hold()
	time.Sleep(2 * short)
	require.Nil(t, ln.Reason(server))
	ln.conn(server).Release()
	_, err := server.Read(make([]byte, 1))
	require.Error(t, err)
	require.ErrorIs(t, ln.Reason(server), reap.ReadIdle)
	_, err = ln.Watch(server)
	require.ErrorContains(t, err, "is watched already")
}

// wrapped is a listener that wraps its connections.
type wrapped struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (w wrapped) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return w.wrap(c), nil
}

func TestAListenerBelowThatWrapsItsConnections(t *testing.T) {
	t.Parallel()
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	e := serveEcho(t, wrapped{inner, func(c net.Conn) net.Conn { return simLayer{c} }}, Config{ReadTimeout: short})
	_, c := e.open()
	require.IsType(t, simLayer{}, c.Conn, "Accept returns what the inner listener has returned")
	eventually(t, "it ends", func() bool { return e.Reason(c) != nil })
}

// opaque is a connection without a socket.
type opaque struct{ net.Conn }

func TestAConnectionThatIsNoSocketIsServedButNotWatched(t *testing.T) {
	t.Parallel()
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	var log syncbuf.Buffer
	e := serveEcho(t, wrapped{inner, func(c net.Conn) net.Conn { return opaque{c} }}, Config{
		ReadTimeout: short, Logger: slog.New(slog.NewTextHandler(&log, nil)), Sources: sourcelimit.Limits{Connections: 1},
	})
	client, c := e.open()
	say(t, e.dial(), "it takes no place of its source")
	require.Empty(t, e.conn(c).ID())
	time.Sleep(2 * short)
	say(t, client, "it stays")
	require.Zero(t, e.Connections())
	eventually(t, "there is a warning", func() bool {
		return bytes.Contains([]byte(log.String()), []byte("it needs a method SyscallConn, or NetConn that returns the connection inside"))
	})
	_ = client.Close()
}

// TestAListenerAboveThatHidesItsConnectionsIsWarnedAbout: net/http tells of connections by what its
// listener returned, so requests cannot hold them.
func TestAListenerAboveThatHidesItsConnectionsIsWarnedAbout(t *testing.T) {
	t.Parallel()
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	var log syncbuf.Buffer
	ln, err := Listen(inner, Config{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	srv := &http.Server{Handler: http.NotFoundHandler(), ConnState: ln.ConnState}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(wrapped{ln, func(c net.Conn) net.Conn { return opaque{c} }}) }()
	sockets.Dial(t, "tcp", ln.Addr().String())
	eventually(t, "there is a warning", func() bool {
		return strings.Contains(log.String(), "requests of a connection do not hold it") &&
			strings.Contains(log.String(), "idlenet.opaque is not a socket")
	})
	require.NoError(t, srv.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

// TestAServerThatIsNeverReadyIsWarned has HandshakeTimeout and a client that talks or is silent.
// The server has called Ready for another one, or not. One ends by its age.
func TestAServerThatIsNeverReadyIsWarned(t *testing.T) {
	fair.TryParallel(t, func(t testing.TB) {
		for _, tc := range []struct{ calls, talks, ages bool }{{talks: true}, {}, {calls: true, talks: true}, {talks: true, ages: true}} {
			var log syncbuf.Buffer
			e := newEcho(t, Config{HandshakeTimeout: time.Hour, Tick: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			say(t, e.dial(), "hello")
			left := 0
			if tc.calls {
				e.conn(e.accepted()).Ready()
				left = 1
			}
			c := e.dial()
			age := map[bool]time.Duration{true: short / 2}[tc.ages]
			require.NoError(t, e.Update(func(cfg *Config) { cfg.HandshakeTimeout, cfg.MaxAge = short, age }))
			for tc.talks && len(e.ended()) == 0 {
				_, _ = c.Write([]byte("x"))
				time.Sleep(short / 10)
			}
			eventually(t, "those without Ready end", func() bool { return e.Connections() == left })
			logging.Of(e.watch.Settings().Logger).Flush()
			require.Equal(t, !tc.calls && tc.talks && !tc.ages, strings.Contains(log.String(), "neither Ready nor AttachHTTP"))
		}
	})
}

// TestRequestsOfAConnectionThatIsNotWatched come by a handler that serves both kinds.
func TestRequestsOfAConnectionThatIsNotWatched(t *testing.T) {
	t.Parallel()
	var log syncbuf.Buffer
	e := newEcho(t, Config{ReadTimeout: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	client := e.dial()
	e.ConnState(e.accepted(), http.StateActive)
	for _, state := range []http.ConnState{http.StateHijacked, http.StateClosed} {
		e.ConnState(client, state)
	}
	closed := e.dial()
	require.NoError(t, closed.Close())
	e.ConnState(closed, http.StateIdle)
	logging.Of(e.watch.Settings().Logger).Flush()
	require.NotRegexp(t, "hold it|not watched", log.String())
	e.ConnState(client, http.StateActive)
	eventually(t, "there is a warning", func() bool {
		return strings.Contains(log.String(), "requests of a connection do not hold it") && strings.Contains(log.String(), "is not watched")
	})
}

func TestWatchADialledConnection(t *testing.T) {
	t.Parallel()
	e := newEcho(t, Config{ReadTimeout: short})
	client := e.dial()
	e.conn(e.accepted()).Hold()
	watched, err := e.Watch(client)
	require.NoError(t, err)
	require.Equal(t, client, watched)
	_, err = e.Watch(client)
	require.ErrorContains(t, err, "is watched already")
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorIs(t, e.Reason(client), reap.ReadIdle)
	require.NoError(t, client.Close())
	require.False(t, askKernel(client.(socket), 0, new(verdict.Evidence)))
}

// TestBytesOfTheFirstTickCount reads before the clock of a Listener has moved.
func TestBytesOfTheFirstTickCount(t *testing.T) {
	ln, err := Listen(listenUnix(t), Config{FirstByteTimeout: time.Hour, Stamp: true})
	require.NoError(t, err)
	inner, peer := net.Pipe()
	defer func() { _, _ = inner.Close(), peer.Close() }()
	n := &conn{Front: front{conntable.Record{Tag: conntable.Fresh}, keep(&stampedConn{Conn: inner, reaper: ln.Reaper}, nil)}}
	require.True(t, ln.shards[0].lastRead(n).Has(conntable.Fresh))
	go func() { _, _ = peer.Write([]byte("x")) }()
	_, err = n.Front.kept.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, ln.watch.Clock.Stamp())
	require.False(t, ln.shards[0].lastRead(n).Has(conntable.Fresh))
}

// TestReadsWithStampAreHeard reads a byte, which shows that the network works.
func TestReadsWithStampAreHeard(t *testing.T) {
	cfg, now := Config{ReadTimeout: time.Hour, Stamp: true}, mono.Time(0)
	checked, err := cfg.check(nil, 0, nil)
	require.NoError(t, err)
	r := newReaper(checked, func() mono.Time { return now }, askKernel)
	inner, peer := net.Pipe()
	defer func() { _, _ = inner.Close(), peer.Close() }()
	now = now.Add(time.Second)
	r.driver.move()
	require.Zero(t, r.driver.lastHeard(now))
	go func() { _, _ = peer.Write([]byte("x")) }()
	_, err = (&stampedConn{Conn: inner, reaper: r}).Read(make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, now.Sub(r.driver.lastHeard(now)).Truncate(cfg.Tick))
	r.driver.noteHeard(&verdict.Evidence{}, now.Add(time.Hour))
	r.driver.noteHeard(&verdict.Evidence{Dated: true, Received: 1, Silent: time.Minute, Found: verdict.Unread}, now.Add(time.Hour))
	require.Equal(t, now.Add(59*time.Minute), r.driver.heard)
	r.driver.noteHeard(&verdict.Evidence{Found: verdict.Unread}, now.Add(time.Hour))
	require.Equal(t, now.Add(time.Hour), r.driver.heard, "a byte without a date has come by then")
}

// TestConfigUnwrapFindsTheSocket has wrappers of others, below the Listener and above it, and one
// that has no socket inside.
func TestConfigUnwrapFindsTheSocket(t *testing.T) {
	t.Parallel()
	inner := sockets.Listen(t, "tcp", "127.0.0.1:0")
	e := serveEcho(t, wrapped{inner, func(c net.Conn) net.Conn { return opaque{opaque{c}} }}, Config{
		ReadTimeout: short, Unwrap: func(c net.Conn) net.Conn {
			require.NotNil(t, c)
			if o, is := c.(opaque); is {
				return o.Conn
			}
			return nil
		},
	})
	e.dial()
	c := opaque{e.accepted()}
	require.NoError(t, e.Update(func(cfg *Config) { cfg.Unwrap = nil }))
	require.NotEmpty(t, e.conn(c).ID())
	e.conn(c).Hold()
	time.Sleep(2 * short)
	require.Nil(t, e.Reason(c))
	e.conn(c).Release()
	eventually(t, "it ends", func() bool { return e.Reason(c) != nil })
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	require.Empty(t, e.conn(a).ID())
	_, err := e.Watch(opaque{a})
	require.ErrorContains(t, err, "Config.Unwrap")
}

// A denier has no socket inside after its Close.
type denier struct {
	net.Conn
	closed *atomic.Bool
}

func (c denier) NetConn() net.Conn {
	if c.closed.Load() {
		return nil
	}
	return c.Conn
}

func (c denier) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// TestAWrapperThatDeniesItsSocket closes a connection, after which its wrapper denies it. The next
// connection has the same address.
func TestAWrapperThatDeniesItsSocket(t *testing.T) {
	w := newQuietWorld(t, Config{ReadTimeout: time.Second, MaxAge: time.Hour})
	var closed atomic.Bool
	w.wrap = func(c net.Conn) net.Conn { return denier{c, &closed} }
	first := w.accept()
	closed.Store(true)
	w.ln.conn(first.c).Hold()
	first.serverCloses()
	w.wrap = nil
	w.Sleep(3 * time.Second)
	require.Zero(t, w.ln.Connections())
	next := w.accept()
	require.Same(t, first.conn, next.conn, "the address is used again")
	w.ln.conn(next.c).Hold()
	require.Nil(t, w.ln.Reason(next.c))
	w.ln.conn(next.c).Release()
	w.Sleep(time.Second + w.Slack())
	require.NotNil(t, w.ln.Reason(next.c))
	for _, s := range w.ln.shards {
		require.LessOrEqual(t, s.ids.Len(), s.Open)
	}
}
