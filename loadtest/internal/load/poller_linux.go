package load

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is the number of events that a poller returns at a time.
const maxEvents = 512

// A poller waits for events of connections (epoll). Not safe for concurrent use, except wake.
type poller struct {
	fd     int
	wakeup int // eventfd
	events []unix.EpollEvent
}

func newPoller() (*poller, error) {
	p := &poller{events: make([]unix.EpollEvent, maxEvents)}
	var err error
	if p.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	if p.wakeup, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	// With EPOLLET each wake is an event, and nothing has to read the counter.
	return p, unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, p.wakeup, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1})
}

func (p *poller) close() {
	_ = unix.Close(p.wakeup)
	_ = unix.Close(p.fd)
}

// wake ends a wait with an event of the descriptor -1. Safe for concurrent use until close.
func (p *poller) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(p.wakeup, one[:])
}

// wait waits for some nanoseconds at most, and returns the number of events. The resolution is a
// nanosecond if the kernel has epoll_pwait2 (Linux 5.11), otherwise a millisecond, which would add
// up to a millisecond to the measured latencies. It bypasses the Go scheduler: handing over the
// processor for each wait costs more CPU than the rest of the loop. The wait must be short, because
// a garbage collection waits for its end.
func (p *poller) wait(atMost int64) (int, error) {
	timeout := [2]int64{atMost / 1e9, atMost % 1e9} // seconds and nanoseconds, with 32 bits as well
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.ENOSYS, unix.EPERM: // containers may return EPERM
		return unix.EpollWait(p.fd, p.events, int((atMost+999_999)/1_000_000))
	default:
		return 0, errno
	}
}

const (
	// blocked is the length of a wait that has blocked.
	blocked = 50 * time.Microsecond
	// lateWake is how late the kernel may end a wait of a process that runs.
	lateWake = time.Millisecond
)

// moments bound the times of events. The loop is told of events, but not when they happened.
type moments struct {
	clear    int64 // all events until then are known
	certain  int64 // the events that are being handled happened then or later
	handling int64 // they should have been handled since then
}

// woke finds out when the events of a wait from began to woke happened at the earliest: when it
// ended, if it has blocked and the process was running. full says that there may be more events.
func (m *moments) woke(woke, began, until int64, full bool) {
	switch due := max(until, began); {
	case woke < began+int64(blocked): // they happened while the last ones were handled
		m.certain, m.handling = m.clear, m.clear
	case woke > due+int64(lateWake): // the process did not run
		m.certain, m.handling = began, due
	default:
		m.certain, m.handling = woke, woke
	}
	if !full {
		m.clear = woke
	}
}
