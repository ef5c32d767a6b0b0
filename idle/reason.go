package idle

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A Reason says why a connection is closed by the Reaper. It is an error, so that OnClose can compare:
//
//	if errors.Is(err, idle.ReadIdle) {
//
// The zero Reason is none. Later versions may add reasons.
type Reason uint8

// The reasons. If several limits have passed, the one that passed first is the reason.
const (
	// ReadIdle: the peer sent nothing for Config.ReadTimeout. Netty calls it READER_IDLE.
	ReadIdle Reason = iota + 1
	// WriteIdle: nothing was sent to the peer for Config.WriteTimeout. Netty calls it WRITER_IDLE.
	WriteIdle
	// AllIdle: nothing was sent in either direction for Config.AllTimeout. Netty calls it ALL_IDLE.
	AllIdle
	// NoFirstByte: the peer sent no byte within Config.FirstByteTimeout.
	NoFirstByte
	// NoHandshake: Conn.Ready was not called within Config.HandshakeTimeout.
	NoHandshake
	// WriteStall: the peer took no output for Config.WriteStallTimeout.
	WriteStall
	// OverLimit: more output waited than Config.OutputLimit allows.
	OverLimit
	// BelowMinRate: an open message came in more slowly than Config.MinRate.
	BelowMinRate
	// HeartbeatTimeout: the peer did not answer the pings of Config.Heartbeat.
	HeartbeatTimeout
	// MaxAge: the connection reached Config.MaxAge.
	MaxAge
	// Drained: Reaper.Drain was called.
	Drained
	// Kicked: Reaper.Kick was called.
	Kicked
	// Shed: the connection made room for others, see Config.MaxConnections.
	Shed

	firstReason = ReadIdle
	lastReason  = Shed
	lastDue     = Reason(verdict.LastDue) // the reasons after it have no deadline
	reasons     = int(lastReason) + 1     // with the zero Reason
	idleReasons = verdict.IdleReasons
)

// The verdict uses the same numbers. This does not compile if it has more or fewer.
var _ = [1]struct{}{}[Shed-Reason(verdict.Shed)]

// Error returns the name of the reason in logs, metrics and reports, such as "read idle".
func (r Reason) Error() string { return verdict.Reason(r).String() }

// MarshalText returns the name.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.Error()), nil }

// UnmarshalText reads a name that MarshalText has returned.
func (r *Reason) UnmarshalText(text []byte) error {
	for known := firstReason; known <= lastReason; known++ {
		if known.Error() == string(text) {
			*r = known
			return nil
		}
	}
	return fmt.Errorf("idle: %q is not the name of a reason", text)
}

// isIdle reports whether it is an idle event, about which OnIdle decides.
func (r Reason) isIdle() bool { return verdict.Reason(r).IsIdle() }

func (r Reason) valid() bool { return verdict.Reason(r).Valid() }

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

// Event is the observation that a connection is idle.
type Event struct {
	Reason Reason // ReadIdle, WriteIdle or AllIdle
	// First is true for the first event since the connection was opened or was last active in this direction, and false for
	// those that follow, one per timeout.
	First bool
	// Timeout is the limit that was passed, without what Config.Jitter adds.
	Timeout time.Duration
	// Idle is how long the connection has been idle, over all events since it was active. On Linux and TCP it is what
	// the kernel measured, elsewhere it may be up to two ticks short.
	Idle time.Duration
	// Late is how long after its deadline the event comes, or after the change of the configuration that has brought it forward. For the first event on Linux and TCP it is exact; otherwise it
	// may be up to one tick too much for the first, and up to one tick short for those that follow.
	Late time.Duration
}
