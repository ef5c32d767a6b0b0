package idle

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// The reasons of connections that were reaped, one for each [Kind]: what OnClose gets matches one of them with errors.Is.
var (
	ErrReadIdle    = errors.New("read idle")
	ErrWriteIdle   = errors.New("write idle")
	ErrAllIdle     = errors.New("all idle")
	ErrNoFirstByte = errors.New("no first byte")
	ErrNoHandshake = errors.New("no handshake")
	ErrWriteStall  = errors.New("write stall")
	ErrOverLimit   = errors.New("over limit")
	ErrSlowPeer    = errors.New("slow peer")
	ErrNoAnswer    = errors.New("no answer")
	ErrTooOld      = errors.New("too old")
	ErrDrained     = errors.New("drained")
	ErrKicked      = errors.New("kicked")
	ErrShed        = errors.New("shed")
)

var sentinels = [kinds]error{
	ReadIdle:    ErrReadIdle,
	WriteIdle:   ErrWriteIdle,
	AllIdle:     ErrAllIdle,
	NoFirstByte: ErrNoFirstByte,
	NoHandshake: ErrNoHandshake,
	WriteStall:  ErrWriteStall,
	OverLimit:   ErrOverLimit,
	SlowPeer:    ErrSlowPeer,
	NoAnswer:    ErrNoAnswer,
	TooOld:      ErrTooOld,
	Drained:     ErrDrained,
	Kicked:      ErrKicked,
	Shed:        ErrShed,
}

// ErrNotWatched is returned for a connection that the Reaper does not watch: it is closed, a datagram socket, or was never
// opened through this Reaper.
var ErrNotWatched = errors.New("idle: the connection is not watched")

// ReapError is what OnClose gets for a connection that the Reaper has closed. It matches the sentinel of its Kind with
// errors.Is, and os.ErrDeadlineExceeded where a time has passed.
type ReapError struct {
	Kind Kind
	// Limit is the time that has passed: the timeout, or the window of Config.MinRate; for NoAnswer from the last sign of
	// life to the end. It is 0 for Drained, Kicked and Shed, and for OverLimit where the hard limit was passed.
	Limit time.Duration
	// Lasted is how long it has been so: how long the connection was idle, see [Event]; since it was opened, for NoFirstByte,
	// NoHandshake and TooOld; since the peer last took something, since output was above the soft limit, since the window
	// began, since the last sign of life; how long one that was shed or drained was silent.
	Lasted time.Duration
	// Late is how long after its deadline it was closed; see [Event].
	Late time.Duration
	// Bytes and LimitBytes are the output that waits and its limit for OverLimit, what came in the window and what should
	// have for SlowPeer, and 0 otherwise.
	Bytes, LimitBytes int
}

func (e *ReapError) Error() string {
	const prefix = "idle: connection reaped: "
	lasted := e.Lasted.Round(time.Millisecond)
	switch {
	case e.Kind == OverLimit && e.Limit == 0:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, at most %d may", e.Kind, e.Bytes, e.LimitBytes)
	case e.Kind == OverLimit:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, more than %d for %v, limit %v",
			e.Kind, e.Bytes, e.LimitBytes, lasted, e.Limit)
	case e.Kind == SlowPeer:
		return fmt.Sprintf(prefix+"%v: %d bytes came in %v, fewer than %d", e.Kind, e.Bytes, lasted, e.LimitBytes)
	case e.Kind == Kicked || e.Kind == Drained:
		return prefix + e.Kind.String()
	case e.Kind == Shed:
		return fmt.Sprintf(prefix+"%v to make room, after a silence of %v", e.Kind, lasted)
	}
	return fmt.Sprintf(prefix+"%v for %v, limit %v", e.Kind, lasted, e.Limit)
}

// Timeout reports whether a time has passed, as the errors of net do for a deadline: true but for Drained, Kicked, Shed and the hard limit
// of OverLimit.
func (e *ReapError) Timeout() bool { return e.Limit > 0 }

// Is reports whether target is the sentinel of the reason, or os.ErrDeadlineExceeded where Timeout is true.
func (e *ReapError) Is(target error) bool {
	if target == os.ErrDeadlineExceeded {
		return e.Timeout()
	}
	return e.Kind.valid() && target == sentinels[e.Kind]
}
