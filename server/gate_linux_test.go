package server

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/idle"
)

func TestTheGateIsOfOneAddress(t *testing.T) {
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer all.Close()
	port := all.Addr().(*net.TCPAddr).Port
	find := func(ip net.IP) []int {
		fds, err := listeners(address{"tcp", &net.TCPAddr{IP: ip, Port: port}})
		if err != nil {
			require.ErrorContains(t, err, "listens on")
		}
		return fds
	}
	require.Len(t, find(nil), 1)
	require.Len(t, find(net.IPv4zero), 1)
	require.Len(t, find(net.IPv6zero), 1)
	require.Empty(t, find(net.IPv4(127, 0, 0, 1)), "it listens there as well, for another server")
	one, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer one.Close()
	port = one.Addr().(*net.TCPAddr).Port
	require.Len(t, find(net.IPv4(127, 0, 0, 1)), 1)
	require.Empty(t, find(nil), "another server has one address of all")
	_, err = listeners(address{"unix", &net.UnixAddr{Name: "x", Net: "unix"}})
	require.ErrorIs(t, err, errCannotPause)
}

// listenTCP listens as gnet does: the listeners of package net are of MPTCP, which has no filters.
func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	var cfg net.ListenConfig
	cfg.SetMultipathTCP(false)
	ln, err := cfg.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

func TestTheGateIsPreparedOnceThereIsADescriptor(t *testing.T) {
	ln := listenTCP(t)
	defer ln.Close()
	g := newGate(address{"tcp", ln.Addr()}, 1, slog.New(slog.DiscardHandler), func() bool { return true }, new(atomic.Uint64))
	defer g.forget()
	defer g.end()

	var usual unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &usual))
	next, ok := freeDescriptor()
	require.True(t, ok)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: usual.Max}))
	require.False(t, g.prepare(true))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &usual))
	require.False(t, g.ready.Load())
	g.shut("nobody can tell what to pause", func() { t.Error("it is not shut") })

	require.True(t, g.prepare(false))
	require.Len(t, g.latch.fds, 1)
	g.shut("the test wants it", func() {})
	require.Eventually(t, func() bool { return !g.closed.Load() }, 10*time.Second, time.Millisecond, "there is room")
	c, err := net.DialTimeout("tcp", ln.Addr().String(), 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// sharing is a server that shares a port, and goes in a moment.
func sharing(addr string) Config {
	return Config{
		Addr: addr, Handler: &echo{}, Idle: idle.Config{ReadTimeout: time.Minute}, Loops: 4, SharePort: true,
		Drain: Drain{Spread: 50 * time.Millisecond, Timeout: 100 * time.Millisecond},
	}
}

// TestServersThatShareAPortHaveTheirOwnGates starts two at the same time, and pauses one of them.
func TestServersThatShareAPortHaveTheirOwnGates(t *testing.T) {
	for range 10 {
		at, err := claim(":0", false)
		require.NoError(t, err)
		port := strconv.Itoa(at.addr.(*net.TCPAddr).Port)
		type started struct {
			*Server
			stop func()
		}
		both := make(chan started, 2)
		for _, addr := range []string{"0.0.0.0:" + port, ":" + port} { // two spellings of one address
			go func() {
				s, stop := startIn(t, sharing(addr))
				both <- started{s, stop}
			}()
		}
		first, second := <-both, <-both
		fds := func(s started) []int {
			g := s.host.Load().gate
			require.Eventually(t, g.ready.Load, 20*time.Second, time.Millisecond)
			return g.latch.fds
		}
		require.Len(t, fds(first), 4)
		require.Len(t, fds(second), 4)
		require.NotSubset(t, fds(first), fds(second))
		first.host.Load().gate.shutForGood()
		first.stop()
		for range 4 {
			c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, 10*time.Second)
			require.NoError(t, err)
			require.NoError(t, pingPong(c, 10*time.Second))
			require.NoError(t, c.Close())
		}
		require.Zero(t, second.Stats().Pauses)
		second.stop()
	}
}

// TestARollingRestartLosesNobody lets a server go while another one has taken over the port: whoever comes is served there, or closed at
// once by the one that goes, and may come again.
func TestARollingRestartLosesNobody(t *testing.T) {
	cfg := sharing("127.0.0.1:0")
	cfg.Drain = Drain{Spread: 100 * time.Millisecond, Timeout: 3 * time.Second}
	old, stopOld := startIn(t, cfg)
	addr := old.Addr().String()
	held, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, pingPong(held, 10*time.Second))
	fresh, stopFresh := startIn(t, sharing(addr))
	require.Eventually(t, fresh.host.Load().gate.ready.Load, 10*time.Second, time.Millisecond)
	gone := make(chan struct{})
	go func() {
		stopOld()
		close(gone)
	}()
	require.Eventually(t, func() bool { return old.Stats().Draining }, 10*time.Second, time.Millisecond)
	served, turned := 0, 0
	for served < 20 {
		_, _ = held.Write([]byte("x")) // it is busy, so that the old one stays for a while
		c, err := net.DialTimeout("tcp", addr, 500*time.Millisecond)
		require.NoError(t, err, "nobody is left to wait")
		if pingPong(c, 10*time.Second) == nil {
			served++
		} else {
			turned++
		}
		c.Close()
		require.Less(t, turned, 200)
	}
	t.Logf("20 were served, %d closed at once and came again", turned)
	<-gone
	stopFresh()
}

func TestAGateThatIsToStayShutIsNotOpened(t *testing.T) {
	ln := listenTCP(t)
	defer ln.Close()
	looked, goOn := make(chan struct{}, 1), make(chan struct{})
	g := newGate(address{"tcp", ln.Addr()}, 1, slog.New(slog.DiscardHandler), func() bool {
		looked <- struct{}{}
		<-goOn
		return true
	}, new(atomic.Uint64))
	defer g.forget()
	defer g.end()
	g.prepare(true)
	if !g.isDropping() {
		t.Skip("without CAP_NET_ADMIN the gate does not stay shut: who comes is told to go elsewhere")
	}
	g.shut("the test wants it", func() {})
	<-looked // it is about to find that there is room
	g.shutForGood()
	close(goOn)
	g.wait.Wait()
	_, err := net.DialTimeout("tcp", ln.Addr().String(), 300*time.Millisecond)
	require.Error(t, err)
}

// A newcomer is a connection as OnOpen sees it.
type newcomer struct {
	gnet.Conn
	fd int
}

func (n *newcomer) Fd() int        { return n.fd }
func (*newcomer) SetContext(_ any) {}

// TestNobodyInheritsTheFilterOfTheGate gives a connection the filter of its listener, as the kernel does if it comes in just then.
func TestNobodyInheritsTheFilterOfTheGate(t *testing.T) {
	ln := listenTCP(t)
	defer ln.Close()
	client, err := net.Dial("tcp4", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := ln.Accept()
	require.NoError(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) { err = attach(int(fd), dropAll) }))
	if errors.Is(err, unix.EPERM) {
		t.Skip("without CAP_NET_ADMIN there are no filters")
	}
	require.NoError(t, err)
	_, err = client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(make([]byte, 5))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is deaf")

	h := &host{full: 1, log: slog.New(slog.DiscardHandler), door: &door{log: slog.New(slog.DiscardHandler)}}
	h.gate = newGate(address{"tcp", ln.Addr()}, 1, h.log, func() bool { return false }, new(atomic.Uint64))
	defer h.gate.forget()
	defer h.gate.end()
	h.gate.used.Store(true)
	h.gate.closed.Store(true)
	require.NoError(t, raw.Control(func(fd uintptr) { h.OnOpen(&newcomer{fd: int(fd)}) }))
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Read(make([]byte, 5))
	require.NoError(t, err, "the client sends again what was dropped")
	h.door.sayAll()
}
