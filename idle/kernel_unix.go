//go:build unix

package idle

import (
	"errors"

	"golang.org/x/sys/unix"
)

// peek looks at the socket without reading from it.
func peek(fd int) finding {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case n > 0:
			return unread
		case errors.Is(err, unix.EAGAIN):
			return nothing
		case errors.Is(err, unix.EINTR):
			continue
		default:
			return ended
		}
	}
}
