package idle

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrNotWatched is returned for a connection that the Reaper does not watch: it is closed, a datagram socket, or was never
// opened through this Reaper.
var ErrNotWatched = errors.New("idle: the connection is not watched")

// ReapError is what OnClose gets for a connection that the Reaper has closed. It matches the sentinel of its Reason with
// errors.Is, and os.ErrDeadlineExceeded where a time has passed.
type ReapError struct {
	Reason Reason
	// Limit is the time that has passed: the timeout, or the window of Config.MinRate; for HeartbeatTimeout from the last sign of
	// life to the end. It is 0 for Drained, Kicked and Shed, and for OverLimit where the hard limit was passed.
	Limit time.Duration
	// Lasted is how long it has been so: how long the connection was idle, see [Event]; since it was opened, for NoFirstByte,
	// NoHandshake and MaxAge; since the peer last took something, since output was above the soft limit, since the window
	// began, since the last sign of life; how long one that was shed or drained was silent.
	Lasted time.Duration
	// Late is how long after its deadline it was closed; see [Event].
	Late time.Duration
	// Bytes and LimitBytes are the output that waits and its limit for OverLimit, what came in the window and what should
	// have for BelowMinRate, and 0 otherwise.
	Bytes, LimitBytes int
}

func (e *ReapError) Error() string {
	const prefix = "idle: connection reaped: "
	lasted := e.Lasted.Round(time.Millisecond)
	switch {
	case e.Reason == OverLimit && e.Limit == 0:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, at most %d may", e.Reason, e.Bytes, e.LimitBytes)
	case e.Reason == OverLimit:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, more than %d for %v, limit %v",
			e.Reason, e.Bytes, e.LimitBytes, lasted, e.Limit)
	case e.Reason == BelowMinRate:
		return fmt.Sprintf(prefix+"%v: %d bytes came in %v, fewer than %d", e.Reason, e.Bytes, lasted, e.LimitBytes)
	case e.Reason == Kicked || e.Reason == Drained:
		return prefix + e.Reason.Error()
	case e.Reason == Shed:
		return fmt.Sprintf(prefix+"%v to make room, after a silence of %v", e.Reason, lasted)
	}
	return fmt.Sprintf(prefix+"%v for %v, limit %v", e.Reason, lasted, e.Limit)
}

// Timeout reports whether a time has passed, as the errors of net do for a deadline: true but for Drained, Kicked, Shed and the hard limit
// of OverLimit.
func (e *ReapError) Timeout() bool { return e.Limit > 0 }

// Is reports whether target is the sentinel of the reason, or os.ErrDeadlineExceeded where Timeout is true.
func (e *ReapError) Is(target error) bool {
	if target == os.ErrDeadlineExceeded {
		return e.Timeout()
	}
	return e.Reason.valid() && target == e.Reason
}
