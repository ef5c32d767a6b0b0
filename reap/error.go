package reap

import (
	"fmt"
	"os"
	"time"
)

// Error says why a connection was reaped. With errors.Is it matches its Reason, and
// os.ErrDeadlineExceeded if Timeout is true.
type Error struct {
	// Package is the package that has reaped the connection, "idle" or "idlenet".
	Package string
	Reason  Reason
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

// Error returns the text with the name of the package.
func (e *Error) Error() string {
	text := "connection reaped: " + e.Text()
	if e.Package == "" {
		return text
	}
	return e.Package + ": " + text
}

// Text returns the reason and the figures behind it, such as "read idle for 1m0.1s, limit 1m0s".
func (e *Error) Text() string {
	lasted := e.Lasted.Round(time.Millisecond)
	switch {
	case e.Reason == OverLimit && e.TotalBytes > 0:
		return fmt.Sprintf("%v: %d bytes of output wait, of all connections %d, limit %d",
			e.Reason, e.Bytes, e.TotalBytes, e.LimitBytes)
	case e.Reason == OverLimit && e.Limit == 0:
		return fmt.Sprintf("%v: %d bytes of output wait, limit %d", e.Reason, e.Bytes, e.LimitBytes)
	case e.Reason == OverLimit:
		return fmt.Sprintf("%v: %d bytes of output wait, more than %d for %v, limit %v",
			e.Reason, e.Bytes, e.LimitBytes, lasted, e.Limit)
	case e.Reason == BelowMinRate:
		return fmt.Sprintf("%v: %d bytes arrived in %v, fewer than %d", e.Reason, e.Bytes, lasted, e.LimitBytes)
	case e.Reason == Kicked || e.Reason == Drained:
		return e.Reason.Error()
	case e.Reason == Shed:
		return fmt.Sprintf("%v to make room, after a silence of %v", e.Reason, lasted)
	}
	if e.Limit == 0 && e.LimitBytes > 0 {
		return fmt.Sprintf("%v: %d bytes, limit %d", e.Reason, e.Bytes, e.LimitBytes)
	}
	return fmt.Sprintf("%v for %v, limit %v", e.Reason, lasted, e.Limit)
}

// Timeout reports whether a time limit has passed, as the errors of package net do. It is false for
// Drained, Kicked, Shed, and OverLimit unless it is for OutputLimit.Soft.
func (e *Error) Timeout() bool { return e.Limit > 0 }

// Is reports whether target is the Reason, or os.ErrDeadlineExceeded if Timeout is true. It is
// false for a nil Error.
func (e *Error) Is(target error) bool {
	if e == nil {
		return false
	}
	if target == os.ErrDeadlineExceeded {
		return e.Timeout()
	}
	return e.Reason != 0 && target == e.Reason
}
