// Package mono has the instants of a monotonic clock, [Time], and a clock that is cheap to read
// because it moves once per tick, [Clock].
//
// A driver moves the Clock, and a heartbeat reads its number with one atomic load. Reading the real
// clock costs more than the rest of a heartbeat.
//
// The number stands still while time passes: between two ticks, while the driver sleeps or is late,
// and while the process is stopped. An event with stamp n happened before the clock moved to n+1;
// nothing more is known. So the clock remembers the real time of its moves, and the move after a
// stamp bounds it from above. By that bound no connection is idle too early, however long the clock
// stood still.
package mono

import "time"

// A Time is an instant: the nanoseconds since the start of the clock that made it. It has a type of
// its own, so that the compiler tells instants from durations. Two instants of one clock are
// compared with the operators of Go. The zero Time is the start of the clock.
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
