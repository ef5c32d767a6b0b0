package accept

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// find returns the descriptors of this process that listen on one of the addresses which are TCP.
func find(addrs []net.Addr) (fds []int, err error) {
	var want []*net.TCPAddr
	for _, addr := range addrs {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			want = append(want, tcp)
		}
	}
	if len(want) == 0 {
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
		ip, port, ok := listensOn(fd)
		if ok && slices.ContainsFunc(want, func(w *net.TCPAddr) bool { return w.Port == port && sameIP(w.IP, ip) }) {
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 {
		return nil, fmt.Errorf("no socket of this process listens on %v", want)
	}
	return fds, nil
}

// listensOn returns the address on which a descriptor listens; ok is false if it is not a listening
// TCP socket.
func listensOn(fd int) (ip net.IP, port int, ok bool) {
	if !isListening(fd) {
		return nil, 0, false
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return nil, 0, false
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return sa.Addr[:], sa.Port, true
	case *unix.SockaddrInet6:
		return sa.Addr[:], sa.Port, true
	}
	return nil, 0, false
}

func isListening(fd int) bool {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && listening != 0
}

// sameIP reports whether a socket that listens on the address has was opened for the address want.
// The address of all interfaces has several spellings. It is not the same as one of these
// interfaces, on which another server may listen.
func sameIP(want, has net.IP) bool {
	if len(want) == 0 || want.IsUnspecified() {
		return has.IsUnspecified()
	}
	return want.Equal(has)
}
