package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/testing/sockets"
	"github.com/idlewheel/idlewheel/internal/testing/syncbuf"
	"github.com/idlewheel/idlewheel/reap"
)

// A flaky listener fails a number of times before it accepts.
type flaky struct {
	*net.TCPListener
	left  atomic.Int64
	error error
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", f.error)}
	}
	return f.TCPListener.Accept()
}

// TestErrorsOfAcceptAreSurvived has accept fail 100 times with each error that accept(2) and
// firewalls are known for. The open connection stays, and new clients are served soon after.
func TestErrorsOfAcceptAreSurvived(t *testing.T) {
	for _, failure := range []syscall.Errno{
		syscall.ENOBUFS, syscall.ENOMEM, syscall.ENFILE, syscall.EMFILE, syscall.EPERM, syscall.EPROTO, syscall.ENETUNREACH,
		syscall.ENETDOWN, syscall.EHOSTUNREACH, syscall.ETIMEDOUT, syscall.EOPNOTSUPP, syscall.ECONNABORTED, syscall.EINTR,
	} {
		t.Run(failure.Error(), func(t *testing.T) {
			t.Parallel()
			ln := &flaky{TCPListener: listenTCP(t).(*net.TCPListener), error: failure}
			var log syncbuf.Buffer
			s, stop := startIn(t, Config{
				Listeners: []net.Listener{ln}, NumEventLoop: 2, Idle: idle.Config{ReadTimeout: time.Hour}, Logger: logTo(&log),
			})
			live := visit(t, s.Addr())
			began := time.Now()
			ln.left.Store(100)
			for range 4 { // each acceptor waits for a client already
				dial(t, s.Addr())
			}
			require.Eventually(t, func() bool { return ln.left.Load() < 0 }, 60*time.Second, time.Millisecond)
			require.Greater(t, time.Since(began), 10*acceptPause, "each acceptor has tried 25 times")
			visit(t, s.Addr())
			require.NoError(t, pingPong(live, 10*time.Second))
			require.Zero(t, s.Reaper().Stats().Closed, "no connection is lost")
			stop()
			require.Contains(t, log.String(), "a connection could not be accepted")
			require.Contains(t, log.String(), "accept4: "+failure.Error())
			require.NotContains(t, log.String(), "descriptors are short", "some are free")
		})
	}
}

// A wrapping listener returns connections that gnet cannot take. It would duplicate their
// descriptors.
type wrapping struct{ net.Listener }

func (w wrapping) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ *net.TCPConn }{c.(*net.TCPConn)}, nil
}

func TestAConnectionThatGnetCannotTakeIsClosed(t *testing.T) {
	var log syncbuf.Buffer
	s, stop := startIn(t, Config{
		Listeners: []net.Listener{wrapping{listenTCP(t)}}, Logger: logTo(&log),
		Idle: idle.Config{ReadTimeout: time.Hour, MaxConnections: 20},
	})
	for range 40 { // more than there is room for
		c := dial(t, s.Addr())
		requireEOF(t, c)
		c.Close()
	}
	stop()
	require.Contains(t, log.String(), "a connection of type struct { *net.TCPConn }: gnet takes *net.TCPConn")
}

// dials registers a connection to an upstream server with the event loop of each client.
type dials struct {
	echo
	upstream net.Addr
	closed   chan error
}

func (d *dials) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	if c.SafeContext() != nil || c.Context() != nil {
		return nil, gnet.Close
	}
	if c.RemoteAddr().String() != d.upstream.String() {
		if _, err := c.EventLoop().Register(context.Background(), d.upstream); err != nil {
			panic(err)
		}
	}
	return nil, gnet.None
}

func (d *dials) OnClose(c gnet.Conn, err error) gnet.Action {
	if c.RemoteAddr().String() == d.upstream.String() {
		d.closed <- err
	}
	return gnet.None
}

// TestAHandlerMayRegisterConnections has a handler that dials, as a proxy does. These connections
// take no room of others, and give back none.
func TestAHandlerMayRegisterConnections(t *testing.T) {
	upstream := listenTCP(t)
	h := &dials{upstream: upstream.Addr(), closed: make(chan error, 1)}
	s, stop := startIn(t, Config{
		Handler: h, Sources: SourceLimits{Connections: 2}, Idle: idle.Config{ReadTimeout: time.Hour, MaxConnections: 10},
	})
	defer stop()
	visit(t, s.Addr())
	far, err := upstream.Accept()
	require.NoError(t, err)
	room := s.acceptors.Load().room
	require.Eventually(t, func() bool { return s.Stats().Connections == 2 }, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, room.taken.Load())
	require.NoError(t, far.Close())
	await(t, h.closed)
	require.EqualValues(t, 1, room.taken.Load())
	require.True(t, room.places.TryAcquire(9))
	require.False(t, room.places.TryAcquire(1))
	room.places.Release(9)
}

// A strangeConn claims to be a unix socket, but is none of package net.
type strangeConn struct{ net.Conn }

func (strangeConn) LocalAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func TestAConnectionOfAnotherPackageIsNotKnown(t *testing.T) {
	require.False(t, isKnown(strangeConn{}))
	name := t.TempDir() + "/s"
	sockets.Listen(t, "unixpacket", name)
	require.False(t, isKnown(sockets.Dial(t, "unixpacket", name)), "it has no stream")
}

// blocks has a handler that blocks an event loop until release is closed.
type blocks struct {
	echo
	blocked, release chan struct{}
}

func (b *blocks) OnTraffic(c gnet.Conn) gnet.Action {
	if p, _ := c.Peek(-1); string(p) == "block" {
		close(b.blocked)
		<-b.release
	}
	return b.echo.OnTraffic(c)
}

// TestABlockedLoopDoesNotKeepOthersFromAccepting blocks one loop of two. New clients of the other
// are served.
func TestABlockedLoopDoesNotKeepOthersFromAccepting(t *testing.T) {
	h := &blocks{blocked: make(chan struct{}), release: make(chan struct{})}
	s, stop := startIn(t, Config{Handler: h, NumEventLoop: 2, Idle: idle.Config{ReadTimeout: time.Hour}})
	defer stop()
	release := sync.OnceFunc(func() { close(h.release) })
	defer release()
	_, err := dial(t, s.Addr()).Write([]byte("block"))
	require.NoError(t, err)
	await(t, h.blocked)
	var clients sync.WaitGroup
	var served atomic.Int64
	for range 100 {
		c := dial(t, s.Addr())
		clients.Go(func() {
			if pingPong(c, 60*time.Second) == nil {
				served.Add(1)
			}
		})
	}
	// The blocked loop has one for each of its acceptors.
	require.Eventually(t, func() bool { return served.Load() >= 100-acceptorsPerLoop }, time.Minute, time.Millisecond)
	release()
	clients.Wait()
	require.EqualValues(t, 100, served.Load())
}

// TestClientsThatWaitAreServedInTheirOrder fills a server. Each client that goes lets the next one
// in. Some clients go while they wait.
func TestClientsThatWaitAreServedInTheirOrder(t *testing.T) {
	const waiting = 50
	for name, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": "unix://" + filepath.Join(shortDir(t), "s")} {
		t.Run(name, func(t *testing.T) {
			s, stop := startIn(t, Config{
				Addresses: []string{addr}, NumEventLoop: 1, Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 1},
			})
			defer stop()
			var clients sync.WaitGroup
			defer clients.Wait()
			var served atomic.Int64
			for i := range waiting {
				c := dial(t, s.Addr())
				if i%5 == 3 {
					c.Close()
					continue
				}
				clients.Go(func() {
					defer c.Close()
					if assert.NoError(t, pingPong(c, 20*time.Second), "client %d", i) {
						assert.LessOrEqual(t, s.Stats().Connections, 1)
						n := int(served.Add(1) - 1)
						assert.InDelta(t, i, n+n/4, 15, "its turn, unless an acceptor was slow")
					}
				})
			}
			clients.Wait()
		})
	}
}

// TestAServerThatStopsWhileClientsWait stops a full server. It does not resume accepting for a
// moment.
func TestAServerThatStopsWhileClientsWait(t *testing.T) {
	var log syncbuf.Buffer
	s, stop := startIn(t, Config{Logger: logTo(&log), Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour, MaxConnections: 1}})
	var conns []net.Conn
	for range 10 {
		conns = append(conns, dial(t, s.Addr()))
	}
	require.Eventually(t, func() bool { return s.Stats().Pauses == 1 }, time.Minute, time.Millisecond)
	a := s.acceptors.Load()
	stop()
	require.Zero(t, a.busy.Load(), "to stop takes no longer")
	require.Equal(t, uint64(1), s.Reaper().Stats().Opened)
	first, _, _ := strings.Cut(log.String(), "\n")
	require.Contains(t, first, "msg=serving", "the log begins with the configuration")
	require.Contains(t, log.String(), "accepting is paused")
	require.NotContains(t, log.String(), "accepting resumes")
	for _, c := range conns {
		requireClosed(t, c)
	}
}

// optioned records options of its sockets: no Nagle's algorithm, and the buffers.
type optioned struct {
	echo
	got chan [3]int
}

func (o *optioned) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	noDelay, _ := syscall.GetsockoptInt(c.Fd(), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	received, _ := syscall.GetsockoptInt(c.Fd(), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
	toSend, _ := syscall.GetsockoptInt(c.Fd(), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	o.got <- [3]int{noDelay, received, toSend}
	return nil, gnet.None
}

func TestSocketBufferIsThatOfTheKernel(t *testing.T) {
	const buffer = 50_000
	options := []gnet.Option{gnet.WithSocketRecvBuffer(buffer / 2), gnet.WithSocketSendBuffer(buffer / 2)}
	for addr, cfg := range map[string]Config{
		"127.0.0.1:0": {Options: options}, "127.0.0.2:0": {SocketBuffer: buffer}, "unix://" + t.TempDir() + "/s": {SocketBuffer: buffer},
	} {
		h := &optioned{got: make(chan [3]int, 1)}
		cfg.Handler, cfg.Addresses = h, []string{addr}
		s, stop := startIn(t, cfg)
		visit(t, s.Addr())
		got := await(t, h.got)
		require.Equal(t, []int{buffer, buffer}, got[1:], "the number in tcp_rmem has the same unit")
		stop()
	}
	_, err := New(Config{SocketBuffer: 1})
	require.ErrorContains(t, err, "Config.SocketBuffer is 1: set at least 16384, or 0 for as the kernel is set")
}

func TestOptionsOfGnetHold(t *testing.T) {
	for _, tc := range []struct {
		options        []gnet.Option
		noDelay, loops int
	}{
		{nil, 1, 5},
		{[]gnet.Option{gnet.WithTCPNoDelay(gnet.TCPDelay), gnet.WithNumEventLoop(3)}, 0, 3},
		{[]gnet.Option{gnet.WithOptions(gnet.Options{ReadBufferCap: 1 << 16})}, 1, 5},
	} {
		h := &optioned{got: make(chan [3]int, 1)}
		s, stop := startIn(t, Config{Handler: h, NumEventLoop: 5, Options: tc.options})
		visit(t, s.Addr())
		require.Equal(t, tc.noDelay, await(t, h.got)[0])
		require.Equal(t, tc.loops, s.setup.Load().budget.loops)
		stop()
	}
}

// TestRunEndsWithoutListeners has other code close all listeners in a shortage of descriptors. Run
// drains and returns an error.
func TestRunEndsWithoutListeners(t *testing.T) {
	first, second := listenTCP(t), listenTCP(t)
	s, _, result := launch(t, Config{
		Listeners: []net.Listener{first, second}, Idle: idle.Config{ReadTimeout: time.Hour, ShedProtect: time.Hour}, Drain: Drain{Timeout: time.Second},
	})
	visit(t, s.Addr())
	require.NoError(t, first.Close())
	visit(t, second.Addr(), "one listener is left")
	defer take(t, s.setup.Load().budget.full())()
	s.acceptors.Load().runShort()
	require.NoError(t, second.Close())
	require.ErrorIs(t, await(t, result), errNoListener)
	require.Equal(t, uint64(2), s.Reaper().Stats().Reaped[reap.Drained])
}
