package accept

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestListenersAreFoundByTheirAddress(t *testing.T) {
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer all.Close()
	port := all.Addr().(*net.TCPAddr).Port
	findOn := func(ips ...net.IP) []int {
		var addrs []net.Addr
		for _, ip := range ips {
			addrs = append(addrs, &net.TCPAddr{IP: ip, Port: port})
		}
		fds, err := find(addrs)
		if err != nil {
			require.ErrorContains(t, err, "listens on")
		}
		return fds
	}
	require.Len(t, findOn(nil), 1)
	require.Len(t, findOn(net.IPv4zero), 1)
	require.Len(t, findOn(net.IPv6zero), 1)
	require.Empty(t, findOn(net.IPv4(127, 0, 0, 1)), "another server may listen there as well")
	one, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer one.Close()
	port = one.Addr().(*net.TCPAddr).Port
	require.Len(t, findOn(net.IPv4(127, 0, 0, 1)), 1)
	require.Empty(t, findOn(nil), "another server has one of all addresses")
}

func TestListenersOfSeveralAddressesAreFound(t *testing.T) {
	first, second := listenTCP(t), listenTCP(t)
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer socket.Close()
	fds, err := find([]net.Addr{first.Addr(), socket.Addr(), second.Addr()})
	require.NoError(t, err)
	require.Len(t, fds, 2, "a unix socket cannot be paused")
	_, err = find([]net.Addr{socket.Addr()})
	require.ErrorIs(t, err, errCannotPause)
}

// listenTCP listens as gnet does: the listeners of package net use MPTCP, which has no filters.
func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	var cfg net.ListenConfig
	cfg.SetMultipathTCP(false)
	ln, err := cfg.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

// newTestPauser returns a Pauser of some listeners, which is stopped when the test ends.
func newTestPauser(t *testing.T, hasRoom func() bool, listeners ...net.Listener) *Pauser {
	t.Helper()
	cfg := Config{Listeners: len(listeners), Logger: slog.New(slog.DiscardHandler), HasRoom: hasRoom, Pauses: new(atomic.Uint64)}
	for _, ln := range listeners {
		cfg.Addrs = append(cfg.Addrs, ln.Addr())
	}
	p := NewPauser(cfg)
	t.Cleanup(func() {
		p.Stop()
		p.Forget()
	})
	return p
}

func TestListenersAreFoundOnceADescriptorIsFree(t *testing.T) {
	ln := listenTCP(t)
	p := newTestPauser(t, func() bool { return true }, ln)

	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	next := null.Fd()
	require.NoError(t, null.Close())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: limit.Max}))
	done := p.Find(true)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.False(t, done)
	p.Pause("the listeners are not known", func() { t.Error("accepting is not paused") })
	require.False(t, p.IsPaused())

	require.True(t, p.Find(false))
	require.Len(t, p.sockets.fds, 1)
	called := false
	p.Pause("the test asks for it", func() { called = true })
	require.True(t, called)
	require.Eventually(t, func() bool { return !p.IsPaused() }, 10*time.Second, time.Millisecond, "there is room")
	require.EqualValues(t, 1, p.cfg.Pauses.Load())
	dial(t, ln, 10*time.Second)
}

func dial(t *testing.T, ln net.Listener, within time.Duration) {
	t.Helper()
	c, err := net.DialTimeout("tcp", ln.Addr().String(), within)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestAPauseIsOfAllAddresses(t *testing.T) {
	first, second := listenTCP(t), listenTCP(t)
	var room atomic.Bool
	p := newTestPauser(t, room.Load, first, second)
	require.True(t, p.Find(true))
	if !p.DropsAll() {
		t.Skip("without CAP_NET_ADMIN one client of each listener is connected")
	}
	p.Pause("the test asks for it", func() {})
	for _, ln := range []net.Listener{first, second} {
		_, err := net.DialTimeout("tcp", ln.Addr().String(), 200*time.Millisecond)
		require.Error(t, err)
	}
	require.True(t, p.IsPaused())
	room.Store(true)
	for _, ln := range []net.Listener{first, second} {
		dial(t, ln, 10*time.Second)
	}
	require.False(t, p.IsPaused())
}

func TestTheListenersOfAnotherPauserAreLeftAlone(t *testing.T) {
	ln := listenTCP(t)
	first := newTestPauser(t, func() bool { return true }, ln)
	require.True(t, first.Find(true))
	second := newTestPauser(t, func() bool { return true }, ln)
	require.False(t, second.Find(false), "its own listener is not open yet")
	first.Stop()
	first.Forget()
	require.True(t, second.Find(false))
	require.Equal(t, first.sockets.fds, second.sockets.fds)
}

func TestAPauseForGoodIsNotUndone(t *testing.T) {
	ln := listenTCP(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	p := newTestPauser(t, func() bool {
		asked <- struct{}{}
		<-answer
		return true
	}, ln)
	p.Find(true)
	if !p.DropsAll() {
		t.Skip("without CAP_NET_ADMIN accepting is not paused for good: new clients are closed at once")
	}
	p.Pause("the test asks for it", func() {})
	<-asked // the Pauser is about to find that there is room
	p.PauseForGood()
	close(answer)
	p.polling.Wait()
	_, err := net.DialTimeout("tcp", ln.Addr().String(), 300*time.Millisecond)
	require.Error(t, err)
}
