package verdict

import "fmt"

// A Reason is the limit whose deadline has passed. The zero Reason is none.
type Reason uint8

// The reasons that have a deadline.
const (
	ReadIdle Reason = iota + 1
	WriteIdle
	AllIdle
	NoFirstByte
	NoHandshake
	WriteStall
	OverLimit
	SlowPeer
	NoAnswer
	TooOld
	Drained

	First     = ReadIdle
	Last      = Drained
	IdleKinds = int(AllIdle) // the first ones, which are idle events
)

// String returns a name for messages about faults of this package.
func (r Reason) String() string { return fmt.Sprintf("reason %d", uint8(r)) }

// IsIdle reports whether the reason is an idle event.
func (r Reason) IsIdle() bool { return r >= ReadIdle && r <= AllIdle }
