package verdict

import "github.com/idlewheel/idlewheel/reap"

// A Reason says why a connection is closed. If several deadlines passed at the same instant, Judge
// returns the smallest Reason.
type Reason = reap.Reason

// The reasons.
const (
	ReadIdle         = reap.ReadIdle
	WriteIdle        = reap.WriteIdle
	AllIdle          = reap.AllIdle
	NoFirstByte      = reap.NoFirstByte
	NoHandshake      = reap.NoHandshake
	WriteStall       = reap.WriteStall
	OverLimit        = reap.OverLimit
	BelowMinRate     = reap.BelowMinRate
	HeartbeatTimeout = reap.HeartbeatTimeout
	MaxAge           = reap.MaxAge
	Drained          = reap.Drained
	Kicked           = reap.Kicked
	Shed             = reap.Shed

	First       = ReadIdle
	LastDue     = Drained // later reasons have no deadline
	Last        = Shed
	IdleReasons = int(AllIdle) // the first ones are idle events
)

// IsIdle reports whether a reason is an idle event.
func IsIdle(r Reason) bool { return r >= ReadIdle && r <= AllIdle }

// Valid reports whether r is one of the reasons.
func Valid(r Reason) bool { return r >= First && r <= Last }
