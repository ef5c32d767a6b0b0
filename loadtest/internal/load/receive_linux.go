package load

import (
	"bytes"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// readAvailable reads all data, or at most one chunk if the connection is slow.
func (l *Loop) readAvailable(c *conn, atMost int) {
	for c.state == open {
		n, err := unix.Read(int(c.fd), l.buf[:atMost])
		switch {
		case n > 0:
			l.onReceived(c, l.buf[:n])
			if n < atMost || !reads(c.Behaviour) {
				return // epoll reports the rest
			}
		case err == unix.EAGAIN:
			return
		default:
			l.onClosed(c, err)
		}
	}
}

// onReceived checks received bytes.
func (l *Loop) onReceived(c *conn, b []byte) {
	for len(b) > 0 && c.state == open && Echoes(c.Behaviour) && !c.unexpected {
		n := min(len(b), c.Size-len(l.parts[c]))
		answer := b[:n]
		b = b[n:]
		if n < c.Size {
			answer = append(l.parts[c], answer...)
			l.parts[c] = answer
		}
		switch {
		case !c.stamped() && (c.answered == c.sent || !bytes.HasPrefix(c.message, answer)):
			c.unexpected = true
		case len(answer) < c.Size: // the rest will follow
		case c.stamped():
			delete(l.parts, c)
			l.onStamped(c, answer)
		default:
			delete(l.parts, c)
			l.onAnswer(c, c.lastSend)
		}
	}
}

// onStamped handles an answer with a stamp.
func (l *Loop) onStamped(c *conn, b []byte) {
	s, ok := readStamp(b)
	switch {
	case !ok, s.conn == c.number && s.number >= c.sent:
		c.unexpected = true
	case s.conn != c.number:
		c.counts.Swapped++
	case s.number < c.answered:
		c.counts.Doubled++
	default:
		c.counts.Skipped += uint64(s.number - c.answered)
		l.missAnswers(c, s.number, math.MaxInt64)
		c.answered = s.number
		l.onAnswer(c, s.moment)
	}
}

// onAnswer counts the answer to the oldest unanswered message, which was sent at the given time.
func (l *Loop) onAnswer(c *conn, sent int64) {
	now := l.now()
	began, intended := c.times(c.answered, sent)
	phase, raw := l.phases.at(began), now-sent
	if c.answered+1 < c.sent && !c.stamped() { // the time is that of a later message
		raw = now - intended
	}
	c.answered++
	if phase != "" {
		c.counts.Answers++
		result.Of(&c.counts.Exchanges, phase).Answered++
		if now := l.phases.present(); now != "" {
			result.Of(&c.counts.Exchanges, now).Arrived++
		}
		of := result.Of(&c.counts.Latency, phase)
		of.Corrected.Record(time.Duration(now - intended))
		of.Raw.Record(time.Duration(raw))
		l.recent.Record(time.Duration(now - intended))
	}
	switch {
	case c.Behaviour == PingPong && !c.silenced && !l.ending:
		l.sendMessage(c)
	case c.Behaviour == Churn:
		c.counts.Ended++
		c.counts.Open--
		l.close(c, c.counts.Ended%2 == 0)
	}
}
