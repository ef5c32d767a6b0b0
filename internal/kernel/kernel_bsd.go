//go:build unix && !linux

package kernel

import "github.com/idlewheel/idlewheel/internal/verdict"

// Ask answers what the event loop cannot know: whether bytes of the peer wait unread in the socket.
func Ask(fd int, ev *verdict.Evidence) { *ev = verdict.Evidence{Found: peek(fd), Queued: -1} }

// HoldsOutput reports false: Ask does not know of output either.
func HoldsOutput(int) bool { return false }
