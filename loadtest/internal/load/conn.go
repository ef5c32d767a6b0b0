package load

import (
	"bytes"
	"math"
	"time"
)

// A conn is one connection. There may be twenty thousand of them in a process: it has 80 bytes.
type conn struct {
	fd    int32
	group uint8
	state state
	flags flag
	// What is sent is the message of the group over and over again: wrote is how far into it, unsent how many bytes are to be sent
	// beyond that. read is how far the echo of it has come.
	wrote, read uint32
	unsent      int64
	sent        uint32 // messages that were to be sent
	answered    uint32
	lateMessage uint32 // sent messages when it was late
	number      uint32 // of the connection in its group, for the jitter

	// Times are nanoseconds since the loop was made.
	intended int64 // when it was to be opened, and then when it was
	base     int64 // moment of the first message
	due      int64 // when it acts next: an entry of the schedule with another time is out of date
	lastSend int64 // just before the last byte was sent, or it began to connect: the target cannot have heard of it earlier
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
	unexpected                  // it was sent something that is no echo
	wantWrite                   // the poller tells when it can be written to
	reset                       // a write has found that it was reset
	sentLate                    // it has sent a message after its timeout, and that is not answered yet
)

// never is the moment of a connection that has nothing to do.
const never = 0

// endless is the number of unsent bytes of who sends as much as it can.
const endless = math.MaxInt64 / 2

// moment returns when message k of a connection is to be sent.
func (s *Spec) messageTime(c *conn, k uint32) int64 {
	at := c.base + int64(k)*int64(s.Interval)
	if s.Jitter > 0 {
		at += int64((2*randomUnit(uint64(c.number)<<32|uint64(k)) - 1) * s.Jitter * float64(s.Interval))
	}
	return at - at%s.grid()
}

// grid returns the distance of the moments at which something may be sent: some messages at once. A process that wakes up for each takes
// more of the processor than the server that answers, and one that sends many waits for itself: that counts where they are frequent.
func (s *Spec) grid() int64 {
	atOnce := time.Duration(8)
	if s.Interval >= time.Second {
		atOnce = 32
	}
	return int64(min(max(atOnce*s.Interval/time.Duration(max(s.Connections, 1)), 100*time.Microsecond), 20*time.Millisecond))
}

// oldest returns when the oldest message that has no answer was to be sent.
func (s *Spec) oldestUnanswered(c *conn) int64 {
	switch s.Behaviour {
	case Heartbeat, HalfOpen:
		return min(s.messageTime(c, c.answered), c.lastSend) // the last word is before its time
	case OneByte: // its last byte
		return c.base + (int64(c.answered+1)*int64(s.Size)-1)*int64(s.Interval)
	}
	return c.lastSend
}

// next returns when a connection acts after now.
func (s *Spec) next(c *conn, now int64) int64 {
	switch s.Behaviour {
	case Heartbeat, HalfOpen, Trickle:
		return s.messageTime(c, c.sent)
	case OneByte:
		bytes := int64(c.sent) * int64(s.Size)
		if c.wrote > 0 { // the last message has begun only
			bytes += int64(c.wrote) - int64(s.Size)
		}
		return c.base + bytes*int64(s.Interval)
	default:
		return now + int64(s.Interval)
	}
}

// unit returns a number from 0 to 1 that looks random, and is the same for the same n (splitmix64 of Steele, Lea and Flood).
func randomUnit(n uint64) float64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return float64((n^n>>31)>>11) / (1 << 53)
}

// message returns a line of a size.
func message(size int) []byte {
	const text = "idlewheel load test "
	line := bytes.Repeat([]byte(text), size/len(text)+1)[:size]
	line[size-1] = '\n'
	return line
}

// repeated returns a message over and over again, so that a write of many needs no copy, in at least 64 KB.
func repeated(message []byte) []byte {
	return bytes.Repeat(message, 1<<16/len(message)+2)
}
