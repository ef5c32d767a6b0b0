//go:build unix

// Package descriptor tells how many file descriptors the process may have, and how many it has.
package descriptor

import (
	"os"

	"golang.org/x/sys/unix"
)

// Limit returns the limit of descriptors of the process, 0 on systems without such a limit. The Go
// runtime has raised it to the hard limit.
func Limit() (int, error) {
	var lim unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	// The field is signed on some systems, where -1 is no limit.
	return int(min(uint64(lim.Cur), 1<<30)), os.NewSyscallError("getrlimit", err)
}

// InUse returns the number of descriptors that the process has open. On systems without /proc it
// returns the lowest free descriptor. It returns false if there is no free one.
func InUse() (int, bool) {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return LowestFree()
	}
	return max(len(names)-1, 0), true // one of them is the directory itself
}

// LowestFree returns the lowest free descriptor, which the kernel gives to the next connection. It
// returns false if there is none.
func LowestFree() (int, bool) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err == unix.EBADF
	}
	_ = unix.Close(fd)
	return fd, true
}
