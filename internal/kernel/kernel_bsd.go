//go:build unix && !linux

package kernel

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Ask reports whether bytes of the peer wait unread in the socket.
func Ask(fd int, ev *verdict.Evidence) { *ev = verdict.Evidence{Found: peek(fd), Queued: -1} }

// AskUnlessFresh is Ask, because the age of the last byte is not known on this system.
func AskUnlessFresh(fd int, _ time.Duration, ev *verdict.Evidence) { Ask(fd, ev) }

// HoldsOutput reports false, because Ask reports no output on this system.
func HoldsOutput(int) bool { return false }
