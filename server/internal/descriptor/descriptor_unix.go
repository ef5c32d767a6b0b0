//go:build unix

package descriptor

import (
	"os"

	"golang.org/x/sys/unix"
)

// RaiseLimit raises the soft limit of descriptors of the process to the hard limit and returns it.
// It returns 0 on systems without such a limit.
func RaiseLimit() (int, error) {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	if lim.Cur < lim.Max {
		raised := unix.Rlimit{Cur: lim.Max, Max: lim.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			lim = raised
		}
	}
	// The field is signed on some systems, where -1 is no limit.
	return int(min(uint64(lim.Cur), 1<<30)), nil
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
