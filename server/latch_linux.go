package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A latch keeps listening sockets from being accepted from, in one of two ways.
//
// A filter on the sockets drops what comes, and the system of the client asks again. Since 2026 the kernel wants CAP_NET_ADMIN for that
// on TCP sockets, which a server that is run with care does not have. Without it, the pollers of the engine are told not to look at the
// sockets, and their backlog is made as short as can be: one client of each is connected by the system and waits for being accepted, and
// others are dropped as well. With the usual backlog thousands would wait, and come all at once when there is room for a few.
type latch struct {
	fds       []int
	backlog   int        // of the sockets while it is open
	interests []interest // of the pollers; nil if filters are permitted
}

// An interest is what a poller was told to look for.
type interest struct {
	poller int
	fd     int
	event  unix.EpollEvent
}

// newLatch returns the latch of some listeners.
func newLatch(fds []int) (latch, error) {
	l := latch{fds: fds, backlog: maxBacklog()}
	err := l.filter(permitAll)
	switch {
	case err == nil:
		return l, l.unfilter()
	case !errors.Is(err, unix.EPERM):
		return l, err
	}
	l.interests, err = interestsOf(fds)
	return l, err
}

// drops reports whether all clients are dropped while it is closed.
func (l latch) drops() bool { return l.interests == nil }

// close keeps sockets from being accepted from.
func (l latch) close() error {
	if l.drops() {
		return l.filter(dropAll)
	}
	return errors.Join(l.tell(func(interest) uint32 { return 0 }), l.listen(0))
}

// open undoes close.
func (l latch) open() error {
	if l.drops() {
		return l.unfilter()
	}
	return errors.Join(l.listen(l.backlog), l.tell(func(i interest) uint32 { return i.event.Events }))
}

// listen changes the backlog.
func (l latch) listen(backlog int) error {
	var errs []error
	for _, fd := range l.fds {
		errs = append(errs, ifListening(fd, func() error { return os.NewSyscallError("listen", unix.Listen(fd, backlog)) }))
	}
	return errors.Join(errs...)
}

// tell tells the pollers what to look for.
func (l latch) tell(events func(interest) uint32) error {
	var errs []error
	for _, i := range l.interests {
		ev := i.event
		ev.Events = events(i)
		errs = append(errs, ifListening(i.fd, func() error {
			return os.NewSyscallError("epoll_ctl", unix.EpollCtl(i.poller, unix.EPOLL_CTL_MOD, i.fd, &ev))
		}))
	}
	return errors.Join(errs...)
}

// ifListening does something to a socket unless it does not listen any more: an engine that has died may have closed it, and somebody else
// may have the descriptor.
func ifListening(fd int, do func() error) error {
	if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
		return fmt.Errorf("descriptor %d does not listen any more", fd)
	}
	return do()
}

// Filters are programs of one instruction of classic BPF: how many bytes of a packet to keep.
const (
	dropAll   = 0
	permitAll = 1<<32 - 1
)

// filter attaches a filter.
func (l latch) filter(keep uint32) error {
	var errs []error
	for _, fd := range l.fds {
		errs = append(errs, ifListening(fd, func() error { return attach(fd, keep) }))
	}
	return errors.Join(errs...)
}

func attach(fd int, keep uint32) error {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: keep}}
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}))
}

func (l latch) unfilter() error {
	var errs []error
	for _, fd := range l.fds {
		errs = append(errs, ifListening(fd, func() error { return unfilter(fd) }))
	}
	return errors.Join(errs...)
}

// unfilter detaches a filter, of a listener or of a connection. One that came in just when the filter was attached to its listener has
// inherited it, and would be deaf: the kernel copies the filter of a listener to the sockets that it makes.
func unfilter(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) { // it had none
		return nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// interestsOf finds out which pollers of this process look at some sockets, and for what.
func interestsOf(fds []int) (all []interest, err error) {
	names, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		poller, err := strconv.Atoi(name.Name())
		if err != nil {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + name.Name())
		if err != nil {
			continue // it is closed by now
		}
		all = append(all, interestsIn(poller, string(info), fds)...)
	}
	for _, fd := range fds {
		if !slices.ContainsFunc(all, func(i interest) bool { return i.fd == fd }) {
			return nil, fmt.Errorf("no poller looks at descriptor %d", fd)
		}
	}
	return all, nil
}

// interestsIn reads what the kernel tells of a poller: a line for each descriptor that it looks at, see proc_pid_fdinfo(5).
func interestsIn(poller int, info string, fds []int) (some []interest) {
	for line := range strings.Lines(info) {
		var fd int
		var events uint32
		var data uint64
		if n, _ := fmt.Sscanf(line, "tfd: %d events: %x data: %x", &fd, &events, &data); n != 3 {
			continue
		}
		if slices.Contains(fds, fd) {
			some = append(some, interest{poller, fd, unix.EpollEvent{Events: events, Fd: int32(data), Pad: int32(data >> 32)}})
		}
	}
	return some
}
