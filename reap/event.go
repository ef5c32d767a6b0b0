package reap

import "time"

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
	// brought the deadline forward or ended ObserveOnly. For the first event on Linux and TCP it is
	// exact. Otherwise it may be up to one tick too large for the first event, and up to one tick
	// too small for later events.
	Late time.Duration
}
