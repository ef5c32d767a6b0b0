//go:build unix

package server

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// descriptorLimit returns the limit of descriptors of the process, which the Go runtime has raised
// to the hard limit. It returns 0 if the system does not tell.
func descriptorLimit() int {
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	// The field is signed on some systems, where -1 is no limit.
	return int(min(uint64(lim.Cur), 1<<30))
}

// descriptorsInUse returns the number of open descriptors of the process. On systems without /proc
// it returns the lowest free descriptor.
func descriptorsInUse() int {
	const dir = "/proc/self/fd"
	// Since Linux 6.2 the size of the directory is their number. Before, it is 0, and a list of
	// 10,000 descriptors takes 16 ms. Other systems report another size.
	var dirStat unix.Stat_t
	if _ = unix.Stat(dir, &dirStat); runtime.GOOS == "linux" && dirStat.Size > 0 {
		return int(dirStat.Size)
	}
	return listDescriptors(dir)
}

func listDescriptors(dir string) int {
	names, err := os.ReadDir(dir)
	if err != nil {
		return lowestFree()
	}
	return len(names) - 1 // one of them is the directory itself
}

// lowestFree returns the lowest free descriptor, which the kernel gives to the next connection, or
// the limit if none is free.
func lowestFree() int {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	switch err {
	case nil:
		_ = unix.Close(fd)
		return fd
	case unix.EBADF: // it is 0
		return 0
	}
	return descriptorLimit()
}

// lock keeps other servers from listening on a unix socket in a directory until unlock is called.
func lock(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = d.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Since(began) > lockTimeout {
			_ = d.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
	}
}

// lockTimeout is the time in which another server is expected to listen or to fail.
const lockTimeout = 5 * time.Second

func isListening(fd int) bool {
	listening, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return listening != 0
}

func sharePort(_, _ string, conn syscall.RawConn) (err error) {
	failed := conn.Control(func(fd uintptr) {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return cmp.Or(failed, err)
}
