package verdict

import "fmt"

// A Reason says why a connection is closed. The zero Reason is none. If several deadlines passed at
// the same instant, Judge returns the smallest Reason.
type Reason uint8

// The reasons.
const (
	ReadIdle Reason = iota + 1
	WriteIdle
	AllIdle
	NoFirstByte
	NoHandshake
	WriteStall
	OverLimit
	BelowMinRate
	HeartbeatTimeout
	MaxAge
	Drained
	Kicked
	Shed

	First       = ReadIdle
	LastDue     = Drained // later reasons have no deadline
	Last        = Shed
	IdleReasons = int(AllIdle) // the first ones are idle events
)

var names = [Last + 1]string{
	ReadIdle:         "read idle",
	WriteIdle:        "write idle",
	AllIdle:          "all idle",
	NoFirstByte:      "no first byte",
	NoHandshake:      "no handshake",
	WriteStall:       "write stall",
	OverLimit:        "over limit",
	BelowMinRate:     "below min rate",
	HeartbeatTimeout: "heartbeat timeout",
	MaxAge:           "max age",
	Drained:          "drained",
	Kicked:           "kicked",
	Shed:             "shed",
}

// String returns the name that logs, metrics and reports use.
func (r Reason) String() string {
	if r.Valid() {
		return names[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Valid reports whether r is one of the reasons.
func (r Reason) Valid() bool { return r >= First && r <= Last }

// IsIdle reports whether the reason is an idle event.
func (r Reason) IsIdle() bool { return r >= ReadIdle && r <= AllIdle }
