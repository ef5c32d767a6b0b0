package load

import (
	"math"
	"time"
)

// A conn is one connection. It takes 88 bytes, and a process may have 20,000 of them.
type conn struct {
	fd    int32
	group uint8
	state state
	flags flag
	// wrote is the offset in its message of the next byte to send, and unsent the number of bytes to
	// send from there.
	wrote       uint32
	unsent      int64
	sent        uint32 // messages begun; bytes of a Trickle
	answered    uint32
	lateMessage uint32 // value of sent when sentLate was set
	number      uint32 // of the connection, counted over all processes; seeds the jitter

	// Times are nanoseconds since NewLoop.
	intended int64 // time to open it; once it is open, time at which it was opened
	base     int64 // time of the first message
	// unplanned is the intended time of the last message if it has no time by the interval.
	unplanned int64
	due       int64 // time of the next action; an entry of the schedule with another time is stale
	// lastSend is just before the last send or connect. The target cannot have seen it earlier.
	lastSend int64
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
	sentLate                    // it sent a message after its timeout, which is not answered yet
	lastWord                    // it sent its last message before the time by the interval
)

// never is the due time of a connection without a next action.
const never = 0

// endless is the number of unsent bytes of a connection that sends as much as it can.
const endless = math.MaxInt64 / 2

// messageTime returns when message k of a connection is to be sent.
func (s *Spec) messageTime(c *conn, k uint32) int64 {
	at := c.base + int64(k)*int64(s.Interval)
	if s.Jitter > 0 {
		at += int64((2*randomUnit(uint64(c.number)<<32|uint64(k)) - 1) * s.Jitter * float64(s.Interval))
	}
	return at - at%s.grid()
}

// grid returns the distance between the times of sends. Messages of several connections share such
// a time, because a process that wakes up for each message uses more CPU than the server that
// answers. Messages sent together wait for each other; their latency includes that.
func (s *Spec) grid() int64 {
	atOnce := time.Duration(8)
	if s.Interval >= time.Second {
		atOnce = 32
	}
	return int64(min(max(atOnce*s.Interval/time.Duration(max(s.Connections, 1)), 100*time.Microsecond), 20*time.Millisecond))
}

// intendedTime returns when message k of a connection was to be sent, or to be begun.
func (s *Spec) intendedTime(c *conn, k uint32) int64 {
	switch s.Behaviour {
	case Heartbeat, HalfOpen:
		if c.flags&lastWord == 0 || k+1 != c.sent {
			return s.messageTime(c, k)
		}
	case OneByte:
		return c.base + int64(k)*int64(s.Size)*int64(s.Interval)
	}
	return c.unplanned
}

// oldestUnanswered returns when the oldest message without an answer was to be sent.
func (s *Spec) oldestUnanswered(c *conn) int64 {
	at := s.intendedTime(c, c.answered)
	if s.Behaviour == OneByte { // the time of its last byte
		at += int64(s.Size-1) * int64(s.Interval)
	}
	return at
}

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

// randomUnit returns a pseudorandom number from 0 to 1 that depends on n only (splitmix64 of
// Steele, Lea and Flood).
func randomUnit(n uint64) float64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return float64((n^n>>31)>>11) / (1 << 53)
}
