package load

import (
	"bytes"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// readAvailable reads all data, or at most one chunk if the connection is slow.
func (l *Loop) readAvailable(g *group, c *conn, atMost int) {
	for c.state == open {
		n, err := unix.Read(int(c.fd), l.buf[:atMost])
		switch {
		case n > 0:
			l.onReceived(g, c, l.buf[:n])
			if n < atMost || !g.Behaviour.reads() {
				return // epoll reports the rest
			}
		case err == unix.EAGAIN:
			return
		default:
			l.onClosed(g, c, err)
		}
	}
}

// onReceived checks received bytes.
func (l *Loop) onReceived(g *group, c *conn, b []byte) {
	for len(b) > 0 && c.state == open && g.Behaviour.Echoes() && !c.unexpected {
		n := min(len(b), g.Size-len(l.parts[c]))
		l.onPart(g, c, b[:n])
		b = b[n:]
	}
}

// onPart handles an answer, or a part of one.
func (l *Loop) onPart(g *group, c *conn, b []byte) {
	if len(b) < g.Size {
		b = append(l.parts[c], b...)
		l.parts[c] = b
	}
	switch {
	case !g.stamped() && (c.answered == c.sent || !bytes.HasPrefix(g.message, b)):
		c.unexpected = true
		return
	case len(b) < g.Size:
		return
	}
	delete(l.parts, c)
	if g.stamped() {
		l.onStamped(g, c, b)
	} else {
		l.onAnswer(g, c, c.lastSend)
	}
}

// onStamped handles an answer with a stamp.
func (l *Loop) onStamped(g *group, c *conn, b []byte) {
	s, ok := readStamp(b)
	switch {
	case !ok, s.conn == c.number && s.number >= c.sent:
		c.unexpected = true
	case s.conn != c.number:
		g.counts.Swapped++
	case s.number < c.answered:
		g.counts.Doubled++
	default:
		g.counts.Skipped += uint64(s.number - c.answered)
		l.missAnswers(g, c, s.number, math.MaxInt64)
		c.answered = s.number
		l.onAnswer(g, c, s.moment)
	}
}

// onAnswer counts the answer to the oldest unanswered message, which was sent at the given time.
func (l *Loop) onAnswer(g *group, c *conn, sent int64) {
	now := l.now()
	began, intended := g.times(c, c.answered, sent)
	phase, raw := l.phases.at(began), now-sent
	if c.answered+1 < c.sent && !g.stamped() { // the time is that of a later message
		raw = now - intended
	}
	c.answered++
	if phase != "" {
		g.counts.Answers++
		result.Of(&g.counts.Exchanges, phase).Answered++
		if now := l.phases.present(); now != "" {
			result.Of(&g.counts.Exchanges, now).Arrived++
		}
		of := g.latency(phase)
		of.Corrected.Record(time.Duration(now - intended))
		of.Raw.Record(time.Duration(raw))
		l.recent.Record(time.Duration(now - intended))
	}
	switch {
	case c.silenced:
	case g.Behaviour == PingPong && !l.ending:
		l.sendMessage(g, c)
	case g.Behaviour == Churn:
		g.counts.Ended++
		g.counts.Open--
		l.close(g, c, g.counts.Ended%2 == 0)
	}
}
