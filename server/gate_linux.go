package server

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

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
