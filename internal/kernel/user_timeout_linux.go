package kernel

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// SetUserTimeout bounds how long sent data may stay without acknowledgement (RFC 5482).
func SetUserTimeout(fd int, d time.Duration) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", err)
}
