package idle

import (
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long sent data may stay without acknowledgement (RFC 5482).
func setUserTimeout(c gnet.Conn, d time.Duration) error {
	err := unix.SetsockoptInt(c.Fd(), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", err)
}
