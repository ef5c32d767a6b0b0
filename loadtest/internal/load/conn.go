package load

import (
	"math"
	"math/rand/v2"
)

// A conn is one connection. It takes 80 bytes, and a process may have 20,000 of them.
type conn struct {
	fd    int32
	group uint8
	state state
	flags flag
	// wrote is the offset in the present message of the next byte to send, unsent the number of bytes
	// to send from there, and read the offset of the next byte of the echo.
	wrote, read uint32
	unsent      int64
	sent        uint32 // messages begun; bytes of a Trickle
	answered    uint32
	lateMessage uint32 // value of sent when sentLate was set
	number      uint32 // of the connection, counted over all processes; seeds the jitter

	// Times are nanoseconds since NewLoop.
	intended int64 // time to open it; once it is open, time at which it was opened
	base     int64 // time of the first message
	due      int64 // time of the next action; an entry of the schedule with another time is stale
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

type flag uint8

const (
	silenced   flag = 1 << iota // it sends nothing any more
	unexpected                  // it received data that is not an echo
	wantWrite                   // the poller watches for writability
	reset                       // a write failed
	unheard                     // its last message is not answered
	sentLate                    // it sent a message after its timeout, which is not answered yet
)

// never is the due time of a connection without a next action.
const never = 0

// whole returns the number of messages that were sent as a whole.
func (c *conn) whole(size uint32) uint32 {
	partial := (c.unsent + int64(size) - 1) / int64(size)
	if partial == 0 && c.wrote > 0 { // the next byte of a OneByte is not due
		partial = 1
	}
	return c.sent - uint32(partial)
}

// endless is the number of unsent bytes of a connection that sends as much as it can.
const endless = math.MaxInt64 / 2

// next returns when a connection acts next.
func (s *Spec) next(c *conn, now int64) int64 {
	switch s.Behaviour {
	case Heartbeat, HalfOpen, Trickle:
		return s.messageTime(c, c.sent)
	case OneByte:
		bytes := int64(c.sent) * int64(s.Size)
		if c.wrote > 0 { // the last message is sent in part
			bytes += int64(c.wrote) - int64(s.Size)
		}
		return c.base + bytes*int64(s.Interval)
	default:
		return now + int64(s.Interval)
	}
}

// randomUnit returns a pseudorandom number from 0 to 1 that depends on a and b only.
func randomUnit(a, b uint32) float64 {
	return float64(rand.NewPCG(uint64(a), uint64(b)).Uint64()>>11) / (1 << 53)
}
