package kernel

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Ask finds nothing. On Windows gnet reads each connection in a goroutine of its own, into a queue
// that the socket does not show. If bytes wait there for longer than the timeout, because a handler
// blocks the loop or the process is stopped, the connection may be reaped.
func Ask(_ int, ev *verdict.Evidence) { *ev = verdict.Evidence{Queued: -1} }

// AskUnlessFresh is Ask, because the age of the last byte is not known on this system.
func AskUnlessFresh(fd int, _ time.Duration, ev *verdict.Evidence) { Ask(fd, ev) }

// HoldsOutput reports false, because Ask reports no output on this system.
func HoldsOutput(int) bool { return false }
