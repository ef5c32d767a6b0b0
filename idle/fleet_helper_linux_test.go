package idle

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
)

// A fleet is many client connections served by one goroutine over epoll. It drains incoming bytes,
// and records when the server closes a connection. The tests of outages use it.
type fleet struct {
	t     testing.TB
	start time.Time
	conns []fleetConn
	byFD  map[int32]*fleetConn
	epoll int
	stop  atomic.Bool
	done  chan struct{}
}

// A fleetConn is a connection of a fleet.
type fleetConn struct {
	fd        int
	sentFrom  atomic.Int64 // just before the last write, nanoseconds since start
	sentUntil atomic.Int64 // just after it
	closedAt  atomic.Int64 // 0 while open
}

// dialFleet opens n connections. An open connection counts as a byte sent.
func dialFleet(t testing.TB, addr net.Addr, n int) *fleet {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	f := &fleet{
		t: t, start: time.Now(), conns: make([]fleetConn, n), byFD: map[int32]*fleetConn{}, epoll: epoll,
		done: make(chan struct{}),
	}
	var family int
	var sa unix.Sockaddr
	switch a := addr.(type) {
	case *net.TCPAddr:
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
	case *net.UnixAddr:
		family, sa = unix.AF_UNIX, &unix.SockaddrUnix{Name: a.Name}
	default:
		t.Fatalf("no fleet for %T", addr)
	}
	for i := range f.conns {
		c := &f.conns[i]
		c.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		c.sentFrom.Store(f.now())
		require.NoError(t, unix.Connect(c.fd, sa), "connection %d", i)
		c.sentUntil.Store(f.now())
		require.NoError(t, unix.SetNonblock(c.fd, true))
		f.byFD[int32(c.fd)] = c
		require.NoError(t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, c.fd,
			&unix.EpollEvent{Fd: int32(c.fd), Events: unix.EPOLLIN}))
	}
	go f.drain()
	t.Cleanup(f.close)
	return f
}

func (f *fleet) now() int64 { return int64(time.Since(f.start)) }

func (f *fleet) drain() {
	defer close(f.done)
	events := make([]unix.EpollEvent, 1024)
	buf := make([]byte, 4096)
	for !f.stop.Load() {
		n, _ := unix.EpollWait(f.epoll, events, 20)
		for _, ev := range events[:max(n, 0)] {
			got, err := unix.Read(int(ev.Fd), buf)
			if got > 0 || err == unix.EAGAIN || err == unix.EINTR {
				continue
			}
			f.byFD[ev.Fd].closedAt.Store(f.now())
			_ = unix.EpollCtl(f.epoll, unix.EPOLL_CTL_DEL, int(ev.Fd), nil)
		}
	}
}

func (f *fleet) close() {
	if f.stop.Swap(true) {
		return
	}
	<-f.done
	for i := range f.conns {
		_ = unix.Close(f.conns[i].fd)
	}
	_ = unix.Close(f.epoll)
}

// send writes to the open connections from until to.
func (f *fleet) send(from, to int, msg string) {
	for i := from; i < to; i++ {
		c := &f.conns[i]
		if c.closedAt.Load() != 0 {
			continue
		}
		at := f.now()
		if _, err := unix.Write(c.fd, []byte(msg)); err == nil {
			c.sentFrom.Store(at)
			c.sentUntil.Store(f.now())
		}
	}
}

// lost returns how many connections from until to the server has closed.
func (f *fleet) lost(from, to int) (n int) {
	for i := from; i < to; i++ {
		if f.conns[i].closedAt.Load() != 0 {
			n++
		}
	}
	return n
}

// silences returns the shortest and the longest time between the last byte and the close, for the
// connections that the server has closed. The shortest is measured from before the write, so that
// the measurement never makes it too short.
func (f *fleet) silences(from, to int) (shortest, longest time.Duration) {
	shortest = 1 << 62
	for i := from; i < to; i++ {
		c := &f.conns[i]
		if at := c.closedAt.Load(); at != 0 {
			shortest = min(shortest, time.Duration(at-c.sentFrom.Load()))
			longest = max(longest, time.Duration(at-c.sentUntil.Load()))
		}
	}
	return shortest, longest
}

// A site is a server on gnet with a Reaper. Most tests with real sockets use it.
type site struct {
	*echo
	listen string // address
	reaper *Reaper
	addr   net.Addr
	events chan Event // of all connections; nil without an OnIdle
}

// newSite runs a server on one loop. setUp may set fields of the site before the Reaper is made.
func newSite(t testing.TB, cfg Config, setUp func(*site)) *site {
	t.Helper()
	s := &site{echo: newEcho(), listen: "tcp://127.0.0.1:0"}
	s.traffic = func(c gnet.Conn) gnet.Action { _, _ = c.Discard(-1); return gnet.None }
	if setUp != nil {
		setUp(s)
	}
	if cfg.Tick == 0 {
		cfg.Tick = tickOf
	}
	if s.events != nil {
		cfg.OnIdle = func(_ gnet.Conn, ev Event) gnet.Action {
			s.events <- ev
			return gnet.None
		}
	}
	s.reaper = middleware(t, s.echo, cfg)
	s.addr = engine.Serve(t, s.reaper, s.booted, s.listen, gnet.WithNumEventLoop(1))
	return s
}

// reason waits for OnClose number n, counted from 0, and returns its error.
func (s *site) reason(t testing.TB, n int) error {
	t.Helper()
	eventually(t, "OnClose", func() bool { return len(s.reasons()) > n })
	return s.reasons()[n]
}

// requireReaped waits until a connection is closed. It checks the time and the reason, and that no
// other connection was closed.
func (s *site) requireReaped(t testing.TB, since time.Time, limit time.Duration, want error) *ReapError {
	t.Helper()
	err := s.reason(t, 0)
	took := time.Since(since)
	require.ErrorIs(t, err, want)
	require.GreaterOrEqual(t, took, limit, "never early")
	var reason *ReapError
	ok := errors.As(err, &reason)
	require.True(t, ok)
	eventually(t, "the reap is counted", func() bool { return s.reaper.Stats().Reaped[reason.Reason] == 1 })
	t.Logf("%v, %v after it began", err, took)
	return reason
}

// dialSmall connects with a small receive buffer.
func dialSmall(t testing.TB, addr net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		return errors.Join(raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
		}), set)
	}}
	c, err := d.Dial("tcp", addr.String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
