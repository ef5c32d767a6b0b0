package load

import (
	"math"
	"math/rand/v2"
)

// A conn is one connection. It takes 96 bytes, and a process may have 20,000 of them.
type conn struct {
	*group
	fd    int32
	place int32 // in the schedule
	state state

	silenced   bool // it sends nothing any more
	unexpected bool // it received data that is not an echo
	wantWrite  bool // the poller watches for writability
	reset      bool // a write failed

	number      uint32 // of the connection, counted over all processes; seeds the jitter
	sent        uint32 // messages begun; bytes of a Trickle
	answered    uint32
	lateMessage uint32 // value of sent when a message was last sent after the timeout

	asked int64 // bytes to send until now
	wrote int64 // bytes sent

	// Times are nanoseconds since NewLoop.
	intended int64 // time to open it; once it is open, time at which it was opened
	base     int64 // time of the first message
	due      int64 // time of the next action
	// lastSend is just before the last send or connect. The target cannot have seen it earlier.
	lastSend int64
	moment   int64 // just before the first byte of the present message was sent
}

type state uint8

const (
	free state = iota
	connecting
	open
)

// sentLate reports whether it sent a message after its timeout, which is not answered yet.
func (c *conn) sentLate() bool { return c.answered < c.lateMessage }

// whole returns the number of messages that were sent as a whole.
func (c *conn) whole() uint32 { return uint32(c.wrote / int64(c.Size)) }

// awaits reports whether it awaits an answer.
func (c *conn) awaits() bool { return Echoes(c.Behaviour) && c.answered < c.whole() }

// endless is the number of bytes of a connection that sends as much as it can.
const endless = math.MaxInt64 / 2

// next returns when a connection acts next, after an action that was due at the given time.
func (c *conn) next(last int64) int64 {
	switch c.Behaviour {
	case Heartbeat, HalfOpen, Trickle:
		return c.messageTime(c.sent)
	}
	return last + int64(c.Interval)
}

// randomUnit returns a pseudorandom number from 0 to 1 that depends on a and b only.
func randomUnit(a, b uint32) float64 {
	return float64(rand.NewPCG(uint64(a), uint64(b)).Uint64()>>11) / (1 << 53)
}
