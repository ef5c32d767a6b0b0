package idle

import (
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
