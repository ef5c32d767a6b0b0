package idle

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrReadIdle is the reason of a connection that was reaped because nothing came from its peer for the read timeout.
var ErrReadIdle = errors.New("read idle")

// ReapError is what OnClose gets for a connection that the Reaper has closed. It matches the sentinel of its reason and
// os.ErrDeadlineExceeded with errors.Is.
type ReapError struct {
	Kind  Kind
	Limit time.Duration // the timeout that was passed
	Idle  time.Duration // how long the connection was idle; see [Event]
	Late  time.Duration // how long after its deadline it was closed; see [Event]
}

func (e *ReapError) Error() string {
	return fmt.Sprintf("idle: connection reaped: %v for %v, limit %v", e.Kind, e.Idle.Round(time.Millisecond), e.Limit)
}

// Timeout reports true, as the errors of net do for a deadline that has passed.
func (e *ReapError) Timeout() bool { return true }

// Is reports whether target is the sentinel of the reason or os.ErrDeadlineExceeded.
func (e *ReapError) Is(target error) bool {
	return target == os.ErrDeadlineExceeded || e.Kind == ReadIdle && target == ErrReadIdle
}
