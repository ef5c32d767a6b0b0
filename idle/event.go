package idle

import "time"

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
