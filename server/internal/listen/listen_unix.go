//go:build unix

package listen

import (
	"cmp"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lock keeps other servers from listening on a unix socket in a directory until unlock is called.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		switch err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return func() { _ = d.Close() }, nil
		case err != unix.EWOULDBLOCK && err != unix.EINTR, time.Since(began) > lockTimeout:
			_ = d.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
	}
}

// lockTimeout is the time in which another server is expected to listen or to fail.
const lockTimeout = 5 * time.Second

// isListening reports whether a descriptor is a socket that listens.
func isListening(fd int) bool {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && listening != 0
}

// sharePort lets other sockets listen on the same port.
func sharePort(_, _ string, socket syscall.RawConn) (err error) {
	failed := socket.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return cmp.Or(failed, err)
}
