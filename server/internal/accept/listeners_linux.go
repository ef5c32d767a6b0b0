package accept

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

// listeners are the listening sockets of an engine and the way in which they are paused: by
// filters, or by the pollers.
type listeners struct {
	fds     []int
	backlog int     // of each socket while it is not paused
	watches []watch // of the pollers; nil if filters are permitted
}

// A watch is an entry of an epoll instance: a poller watches a socket for some events.
type watch struct {
	poller int
	fd     int
	event  unix.EpollEvent
}

// newListeners finds out in which way sockets can be paused.
func newListeners(fds []int) (listeners, error) {
	l := listeners{fds: fds, backlog: MaxBacklog()}
	err := l.forEach(func(fd int) error { return attachFilter(fd, keepAll) })
	switch {
	case err == nil:
		return l, l.forEach(Unfilter)
	case !errors.Is(err, unix.EPERM):
		return l, err
	}
	l.watches, err = watchesOf(fds)
	return l, err
}

// dropAll reports whether all clients are dropped while the sockets are paused.
func (l listeners) dropsAll() bool { return l.watches == nil }

// pause keeps the engine from accepting.
func (l listeners) pause() error {
	if l.dropsAll() {
		return l.forEach(func(fd int) error { return attachFilter(fd, keepNone) })
	}
	return errors.Join(l.setWatches(func(watch) uint32 { return 0 }), l.setBacklog(0))
}

// resume undoes pause.
func (l listeners) resume() error {
	if l.dropsAll() {
		return l.forEach(Unfilter)
	}
	return errors.Join(l.setBacklog(l.backlog), l.setWatches(func(w watch) uint32 { return w.event.Events }))
}

func (l listeners) setBacklog(backlog int) error {
	return l.forEach(func(fd int) error { return os.NewSyscallError("listen", unix.Listen(fd, backlog)) })
}

// setWatches tells the pollers for which events to watch the sockets.
func (l listeners) setWatches(events func(watch) uint32) error {
	var errs []error
	for _, w := range l.watches {
		ev := w.event
		ev.Events = events(w)
		errs = append(errs, ifListening(w.fd, func(fd int) error {
			return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.poller, unix.EPOLL_CTL_MOD, fd, &ev))
		}))
	}
	return errors.Join(errs...)
}

// forEach calls do for each socket that still listens.
func (l listeners) forEach(do func(fd int) error) error {
	var errs []error
	for _, fd := range l.fds {
		errs = append(errs, ifListening(fd, do))
	}
	return errors.Join(errs...)
}

// ifListening calls do unless the descriptor does not listen any more: a dead engine may have
// closed it, and the descriptor may belong to another file now.
func ifListening(fd int, do func(fd int) error) error {
	if !isListening(fd) {
		return fmt.Errorf("descriptor %d does not listen any more", fd)
	}
	return do(fd)
}

// Filters are classic BPF programs of one instruction, which returns the number of bytes of a
// packet to keep.
const (
	keepNone = 0
	keepAll  = 1<<32 - 1
)

func attachFilter(fd int, keep uint32) error {
	program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: keep}}
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}))
}

// Unfilter detaches the filter of a listener or of a connection, if there is one. The kernel copies
// the filter of a listener to the connections that it makes: a connection that is made at the
// moment of a pause would hear nothing.
func Unfilter(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if errors.Is(err, unix.ENOENT) { // there is no filter
		return nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// watchesOf finds the pollers of this process that watch some sockets.
func watchesOf(fds []int) (all []watch, err error) {
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
		all = append(all, parseWatches(poller, string(info), fds)...)
	}
	for _, fd := range fds {
		if !slices.ContainsFunc(all, func(w watch) bool { return w.fd == fd }) {
			return nil, fmt.Errorf("no poller watches descriptor %d", fd)
		}
	}
	return all, nil
}

// parseWatches reads what the kernel tells about a poller: one line for each descriptor that it
// watches, see proc_pid_fdinfo(5).
func parseWatches(poller int, info string, fds []int) (some []watch) {
	for line := range strings.Lines(info) {
		var fd int
		var events uint32
		var data uint64
		if n, _ := fmt.Sscanf(line, "tfd: %d events: %x data: %x", &fd, &events, &data); n != 3 {
			continue
		}
		if slices.Contains(fds, fd) {
			some = append(some, watch{poller, fd, unix.EpollEvent{Events: events, Fd: int32(data), Pad: int32(data >> 32)}})
		}
	}
	return some
}
