package idle

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A Reason says why the Reaper closes a connection. It is an error, so that OnClose can compare:
//
//	if errors.Is(err, idle.ReadIdle) {
//
// The zero Reason is none. Later versions may add reasons.
type Reason uint8

// The reasons. If several limits have passed, the reason is the limit that passed first.
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
	// BelowMinRate: a message arrived more slowly than Config.MinRate.
	BelowMinRate
	// HeartbeatTimeout: the peer did not answer the pings of Config.Heartbeat.
	HeartbeatTimeout
	// MaxAge: the connection reached Config.MaxAge.
	MaxAge
	// Drained: Reaper.Drain was called.
	Drained
	// Kicked: Reaper.Kick was called.
	Kicked
	// Shed: the connection was closed to make room for others, see Config.MaxConnections.
	Shed

	firstReason = ReadIdle
	lastReason  = Shed
	lastDue     = Reason(verdict.LastDue) // the reasons after it have no deadline
	reasons     = int(lastReason) + 1     // with the zero Reason
	idleReasons = verdict.IdleReasons
)

// The verdict uses the same numbers. Otherwise this line does not compile.
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

// isIdle reports whether OnIdle decides about the reason.
func (r Reason) isIdle() bool { return verdict.Reason(r).IsIdle() }

func (r Reason) valid() bool { return verdict.Reason(r).Valid() }

// ErrNotWatched is returned for a connection that the Reaper does not watch: it is closed, it is a
// datagram socket, or it was not opened through this Reaper.
var ErrNotWatched = errors.New("idle: the connection is not watched")

// ReapError is the error that OnClose gets for a connection that the Reaper has closed. With
// errors.Is it matches its Reason, and os.ErrDeadlineExceeded if Timeout is true. For all other
// connections OnClose gets the error of gnet: nil if the handler has closed the connection or the
// engine stops, io.EOF within an *os.SyscallError if the peer has, or why a read or a write failed.
type ReapError struct {
	Reason Reason
	// Limit is the timeout that has passed, without the share of Config.Jitter. For BelowMinRate it
	// is the window of Config.MinRate. For HeartbeatTimeout it is Interval and MaxMissed times
	// Retry, without Heartbeat.Jitter. It is 0 for Drained, Kicked, Shed, and OverLimit unless it
	// is for OutputLimit.Soft.
	Limit time.Duration
	// Lasted is the time that Limit limits. An idle connection was idle for it, see [Event]. For
	// NoFirstByte, NoHandshake and MaxAge it begins with the opening of the connection. For
	// WriteStall it begins when the peer last took output, for OverLimit when output passed the
	// soft limit, for BelowMinRate with the window, and for HeartbeatTimeout with the last sign of
	// life. For Shed and Drained it is the time for which the peer was silent.
	Lasted time.Duration
	// Late is the time from the deadline to the close, see [Event].
	Late time.Duration
	// Bytes and LimitBytes are, for OverLimit, the waiting output and its limit. For BelowMinRate
	// they are the bytes that arrived in the window and the bytes it requires. Otherwise they are
	// 0.
	Bytes, LimitBytes int
	// Grace is, for the Goodbye at MaxAge, the time until the connection is closed. Otherwise the
	// close follows at once, and Grace is 0.
	Grace time.Duration
	// Reconnect is, for Drained, the time after which the client should connect again: a random
	// part of Config.ReconnectSpread.
	Reconnect time.Duration
	// TotalBytes is, for OverLimit because of OutputLimit.Total, the waiting output of all
	// connections. Then LimitBytes is the limit of it. Otherwise it is 0.
	TotalBytes int
}

func (e *ReapError) Error() string {
	const prefix = "idle: connection reaped: "
	lasted := e.Lasted.Round(time.Millisecond)
	switch {
	case e.Reason == OverLimit && e.TotalBytes > 0:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, of all connections %d, limit %d",
			e.Reason, e.Bytes, e.TotalBytes, e.LimitBytes)
	case e.Reason == OverLimit && e.Limit == 0:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, limit %d", e.Reason, e.Bytes, e.LimitBytes)
	case e.Reason == OverLimit:
		return fmt.Sprintf(prefix+"%v: %d bytes of output wait, more than %d for %v, limit %v",
			e.Reason, e.Bytes, e.LimitBytes, lasted, e.Limit)
	case e.Reason == BelowMinRate:
		return fmt.Sprintf(prefix+"%v: %d bytes arrived in %v, fewer than %d", e.Reason, e.Bytes, lasted, e.LimitBytes)
	case e.Reason == Kicked || e.Reason == Drained:
		return prefix + e.Reason.Error()
	case e.Reason == Shed:
		return fmt.Sprintf(prefix+"%v to make room, after a silence of %v", e.Reason, lasted)
	}
	return fmt.Sprintf(prefix+"%v for %v, limit %v", e.Reason, lasted, e.Limit)
}

// Timeout reports whether a time limit has passed, as the errors of package net do. It is false for
// Drained, Kicked, Shed, and OverLimit unless it is for OutputLimit.Soft.
func (e *ReapError) Timeout() bool { return e.Limit > 0 }

// Is reports whether target is the Reason, or os.ErrDeadlineExceeded if Timeout is true.
func (e *ReapError) Is(target error) bool {
	if target == os.ErrDeadlineExceeded {
		return e.Timeout()
	}
	return e.Reason.valid() && target == e.Reason
}

// Event is the observation that a connection is idle.
type Event struct {
	Reason Reason // ReadIdle, WriteIdle or AllIdle
	// First is true for the first event after the connection was opened or active. The events after
	// it follow once per timeout.
	First bool
	// Timeout is the limit that has passed, without the share of Config.Jitter.
	Timeout time.Duration
	// Idle is the time since the connection was last active. On Linux and TCP it is measured by the
	// kernel. Elsewhere it may be up to two ticks short.
	Idle time.Duration
	// Late is the delay of the event after its deadline, or after the change of the Config that
	// brought the deadline forward. For the first event on Linux and TCP it is exact. Otherwise it
	// may be up to one tick too large for the first event, and up to one tick too small for later
	// events.
	Late time.Duration
}
