package verdict

import "github.com/idlewheel/idlewheel/reap"

// A Reason says why a connection is closed. If several deadlines passed at the same instant, Judge
// returns the smallest Reason.
type Reason = reap.Reason

const (
	First       = reap.ReadIdle
	LastDue     = reap.Drained // later reasons have no deadline
	Last        = reap.Shed
	IdleReasons = int(reap.AllIdle) // the first ones are idle events
)

// IsIdle reports whether a reason is an idle event.
func IsIdle(r Reason) bool { return r >= First && int(r) <= IdleReasons }

// Valid reports whether r is one of the reasons.
func Valid(r Reason) bool { return r >= First && r <= Last }
