//go:build unix && !linux

package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Ask reports whether bytes of the peer wait unread in the socket.
func Ask(fd int, ev *verdict.Evidence) { *ev = verdict.Evidence{Found: peek(fd), Queued: -1} }

// peek inspects the socket without reading from it.
func peek(fd int) verdict.Finding {
	var b [1]byte
	for {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case n > 0:
			return verdict.Unread
		case errors.Is(err, unix.EAGAIN):
			return verdict.Nothing
		case errors.Is(err, unix.EINTR):
			continue
		default:
			return verdict.Ended
		}
	}
}
