package idle

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/testing/engine"
)

// A fleet is many client connections served by one goroutine over epoll. It drains incoming bytes,
// and records when the server closes a connection. The tests of outages use it.
type fleet struct {
	t      testing.TB
	start  time.Time
	conns  []fleetConn
	byFD   map[int32]*fleetConn
	epoll  int
	closed atomic.Int64
	stop   atomic.Bool
	done   chan struct{}
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
			f.closed.Add(1)
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

// sendHeartbeats writes to the connections from until to, one per period, for the given time.
func (f *fleet) sendHeartbeats(from, to int, period, length time.Duration) {
	const parts = 10 // spreads the heartbeats
	for until := time.Now().Add(length); time.Now().Before(until); {
		began := time.Now()
		for p := range parts {
			n := to - from
			f.send(from+n*p/parts, from+n*(p+1)/parts, "beat")
			time.Sleep(time.Until(began.Add(period * time.Duration(p+1) / parts)))
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

// A pacer is a group of connections that each send a message of 64 bytes every period and wait for
// its echo. The latency of an echo counts from when its message should have been sent. One thread
// serves all of them. The benchmarks of load use it.
type pacer struct {
	start   time.Time
	fds     []int
	epoll   int
	period  time.Duration
	stop    atomic.Bool
	done    chan struct{}
	samples []sample // owned by the thread until done
}

type sample struct{ at, took time.Duration } // since start

// newPacer opens n connections and starts. Without a period each sends as soon as its echo arrives.
func newPacer(t testing.TB, addr net.Addr, n int, period time.Duration) *pacer {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	p := &pacer{start: time.Now(), epoll: epoll, period: period, done: make(chan struct{})}
	to := addr.(*net.TCPAddr)
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}))
		require.NoError(t, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		require.NoError(t, unix.SetNonblock(fd, true))
		require.NoError(t, unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Fd: int32(len(p.fds)), Events: unix.EPOLLIN}))
		p.fds = append(p.fds, fd)
	}
	go p.run()
	return p
}

func (p *pacer) run() {
	defer close(p.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := len(p.fds)
	due := make([]time.Duration, n) // when the message of each is due, or was
	waits := make([]bool, n)        // for its echo
	got := make([]int, n)
	msg, buf := make([]byte, 64), make([]byte, 256)
	events := make([]unix.EpollEvent, 256)
	begin := time.Since(p.start)
	for i := range due {
		due[i] = begin + p.period*time.Duration(i)/time.Duration(n)
	}
	send := func(i int) {
		if _, err := unix.Write(p.fds[i], msg); err == nil {
			waits[i] = true
		}
	}
	if p.period == 0 {
		for i := range due {
			send(i)
		}
	}
	for next := 0; !p.stop.Load(); {
		now := time.Since(p.start)
		for p.period > 0 && due[next] <= now && !waits[next] {
			send(next)
			next = (next + 1) % n
			now = time.Since(p.start)
		}
		wait := 10 * time.Millisecond
		if p.period > 0 && !waits[next] {
			wait = min(wait, max(due[next]-now, 0))
		}
		for _, ev := range events[:epollWait(p.epoll, events, wait)] {
			i := int(ev.Fd)
			c, err := unix.Read(p.fds[i], buf)
			if c <= 0 && err != unix.EAGAIN {
				_ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, p.fds[i], nil)
				continue
			}
			if got[i] += max(c, 0); got[i] < len(msg) || !waits[i] {
				continue
			}
			got[i], waits[i] = 0, false
			at := time.Since(p.start)
			p.samples = append(p.samples, sample{due[i], at - due[i]})
			if p.period > 0 {
				due[i] += p.period
			} else {
				due[i] = at
				send(i)
			}
		}
	}
}

// epollWait returns the number of events. It waits with nanosecond resolution: with milliseconds a
// pacer would spin, and take a processor from the server.
func epollWait(epoll int, events []unix.EpollEvent, wait time.Duration) int {
	timeout := unix.NsecToTimespec(int64(wait))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// finish ends the pacer and returns its samples.
func (p *pacer) finish() []sample {
	p.stop.Store(true)
	<-p.done
	for _, fd := range p.fds {
		_ = unix.Close(fd)
	}
	_ = unix.Close(p.epoll)
	return p.samples
}

// quantile returns the latency that a part of the echoes did not exceed, for messages that were due
// between two instants.
func quantile(samples []sample, from, to time.Duration, part float64) time.Duration {
	var took []time.Duration
	for _, s := range samples {
		if s.at >= from && s.at <= to {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(part*float64(len(took))), len(took)-1)]
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
