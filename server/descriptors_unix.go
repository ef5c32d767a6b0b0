//go:build unix

package server

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raiseDescriptors raises the soft limit of descriptors to the hard one and returns it.
func raiseDescriptors() (int, error) {
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
	return int(min(uint64(lim.Cur), 1<<30)), nil // it is signed on some systems, and -1 for any number
}

// descriptorsInUse returns how many descriptors the process has, where the system does not tell as many as are below the lowest free one.
func descriptorsInUse() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		n, _ := freeDescriptor()
		return n
	}
	return max(len(names)-1, 0) // one of them is that of the directory
}

// maxBacklog returns how many connections may wait to be accepted by one listener.
func maxBacklog() int {
	const usual = 4096
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return usual
	}
	return n
}

// freeDescriptor returns the lowest descriptor that is free: the next connection gets it. It returns false if there is none.
func freeDescriptor() (int, bool) {
	fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err == unix.EBADF
	}
	_ = unix.Close(fd)
	return fd, true
}
