// Package mono has the type of an instant of a monotonic clock, so that the compiler tells instants
// from durations.
package mono

import "time"

// A Time is an instant: the nanoseconds since the start of the clock that made it. Two instants of
// one clock are compared with the operators of Go. The zero Time is the start of the clock.
type Time int64

// Add returns the instant that is d after t.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time from u to t. It is negative if t is before u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Truncate rounds t down to a multiple of d since the start of the clock. The instant t must not be
// before the start of the clock, and d must be positive.
func (t Time) Truncate(d time.Duration) Time { return t - t%Time(d) }

// String returns the time since the start of the clock.
func (t Time) String() string { return time.Duration(t).String() }
