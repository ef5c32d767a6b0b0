package load

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"time"
)

// minStamped is the size of the shortest message with a stamp. Shorter messages are all equal, and
// an answer to another connection is not noticed.
const minStamped = 44

// A stamp makes a message unique. The message is a line: the connection, the number of the message
// and its moment in hexadecimal, a checksum (CRC-32C) of the rest of the line, and padding.
type stamp struct {
	conn, number uint32
	moment       int64 // nanoseconds since NewLoop, before the first byte was sent
}

// Offsets in a stamped message.
const (
	checksumAt = 32
	paddingAt  = 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// write writes the stamp into a message that has its padding.
func (s stamp) write(message []byte) {
	var b [paddingAt / 2]byte
	binary.BigEndian.PutUint32(b[0:], s.conn)
	binary.BigEndian.PutUint32(b[4:], s.number)
	binary.BigEndian.PutUint64(b[8:], uint64(s.moment))
	hex.Encode(message, b[:checksumAt/2])
	binary.BigEndian.PutUint32(b[checksumAt/2:], checksum(message))
	hex.Encode(message[checksumAt:], b[checksumAt/2:])
}

func checksum(message []byte) uint32 {
	return crc32.Update(crc32.Checksum(message[:checksumAt], castagnoli), castagnoli, message[paddingAt:])
}

// readStamp returns the stamp of a message, and false if the message is garbled.
func readStamp(message []byte) (stamp, bool) {
	var b [paddingAt / 2]byte
	_, err := hex.Decode(b[:], message[:paddingAt])
	s := stamp{binary.BigEndian.Uint32(b[0:]), binary.BigEndian.Uint32(b[4:]), int64(binary.BigEndian.Uint64(b[8:]))}
	return s, binary.BigEndian.Uint32(b[checksumAt/2:]) == checksum(message) && err == nil
}

// padding returns a line of the given size.
func padding(size int) []byte {
	const text = "idlewheel load test "
	line := bytes.Repeat([]byte(text), size/len(text)+1)[:size]
	line[size-1] = '\n'
	return line
}

// repeated returns at least 64 KB of repeated messages, so that one write can send many.
func repeated(message []byte) []byte { return bytes.Repeat(message, 1<<16/len(message)+2) }

// stamped reports whether the messages of the group have stamps.
func (s *Spec) stamped() bool { return Echoes(s.Behaviour) && s.Size >= minStamped }

// messageTime returns when message k of a connection is to be sent.
func (c *conn) messageTime(k uint32) int64 {
	at := c.base + int64(k)*int64(c.Interval)
	if c.Jitter > 0 {
		at += int64((2*randomUnit(c.number, k+1) - 1) * c.Jitter * float64(c.Interval))
	}
	return at - at%c.grid()
}

// times returns when message k of a connection was to begin, and when its last byte was to be sent.
// It was sent at the given time at the latest.
func (c *conn) times(k uint32, sent int64) (begin, end int64) {
	switch c.Behaviour {
	case Heartbeat, HalfOpen:
		sent = min(sent, c.messageTime(k)) // a LastMessage is sent before its time
	case OneByte:
		begin = c.base + int64(k)*int64(c.Size)*int64(c.Interval)
		return begin, begin + int64(c.Size-1)*int64(c.Interval)
	}
	return sent, sent
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
