package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropAll is a filter that lets no packet in: the one instruction of classic BPF that returns 0.
var dropAll = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}

// filter attaches a filter that lets nothing in to listening sockets, or detaches it.
func filter(fds []int, attach bool) error {
	var errs []error
	for _, fd := range fds {
		if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
			errs = append(errs, fmt.Errorf("descriptor %d does not listen any more", fd))
			continue
		}
		var err error
		if attach {
			prog := unix.SockFprog{Len: uint16(len(dropAll)), Filter: unsafe.SliceData(dropAll)}
			err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
		} else if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); errors.Is(err, unix.ENOENT) {
			err = nil // it had none
		}
		errs = append(errs, os.NewSyscallError("setsockopt", err))
	}
	return errors.Join(errs...)
}

// unfilter lets packets in to a connection again. One that came in just when the filter was attached to its listener has inherited it, and
// would be deaf: the kernel copies the filter of a listener to the sockets that it makes.
func unfilter(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) }

// listeners returns the descriptors of this process that listen on a TCP address: gnet keeps them to itself.
func listeners(at address) (fds []int, err error) {
	want, ok := at.addr.(*net.TCPAddr)
	if !ok {
		return nil, errCannotPause
	}
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
			continue
		}
		sa, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			ok = sa.Port == want.Port && sameIP(want.IP, sa.Addr[:])
		case *unix.SockaddrInet6:
			ok = sa.Port == want.Port && sameIP(want.IP, sa.Addr[:])
		default:
			ok = false
		}
		if ok {
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 {
		return nil, fmt.Errorf("no socket of this process listens on %s", at.addr)
	}
	return fds, nil
}

// sameIP reports whether a socket that was to listen on one address listens on it. All addresses of the host can be written in
// several ways, and are not one of them, on which another server may listen.
func sameIP(want, has net.IP) bool {
	if len(want) == 0 || want.IsUnspecified() {
		return has.IsUnspecified()
	}
	return want.Equal(has)
}
