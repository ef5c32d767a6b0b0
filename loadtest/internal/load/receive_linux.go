package load

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// readAvailable reads all data, or at most one chunk if the connection is slow.
func (l *Loop) readAvailable(g *group, c *conn, index int32, atMost int) {
	for c.state == open {
		n, err := unix.Read(int(c.fd), l.buf[:atMost])
		switch {
		case n > 0:
			l.onReceived(g, c, index, l.buf[:n])
			if n < atMost || !g.Behaviour.reads() {
				return // epoll reports the rest
			}
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		default:
			l.onClosed(g, c, index, err)
		}
	}
}

// onReceived handles the received lines. The last one may be incomplete.
func (l *Loop) onReceived(g *group, c *conn, index int32, b []byte) {
	if !g.Behaviour.Echoes() {
		return
	}
	if begun, ok := l.partial[c.fd]; ok {
		b = append(begun, b...)
		delete(l.partial, c.fd)
	}
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n') + 1
		switch {
		case n > 0:
			l.onLine(g, c, index, b[:n])
			if c.state != open {
				return
			}
			b = b[n:]
		case len(b) >= int(g.size): // no answer is as long
			c.flags |= unexpected
			return
		default:
			l.partial[c.fd] = bytes.Clone(b)
			return
		}
	}
}

// onLine compares a line with the messages of the connection that wait for an answer.
func (l *Loop) onLine(g *group, c *conn, index int32, line []byte) {
	connection, n, ok := parseMessage(line, g.message[:g.size], c.number, c.answered)
	switch {
	case !ok:
		c.flags |= unexpected
	case connection != c.number:
		g.counts.Swapped++
	case n < c.answered:
		g.counts.Doubled++
	case n >= c.sent:
		c.flags |= unexpected
	default:
		g.counts.Skipped += uint64(n - c.answered)
		c.answered = n
		l.onAnswer(g, c, index)
	}
}

// isGarbled reports whether the connection received something that is not an answer.
func (l *Loop) isGarbled(g *group, c *conn) bool {
	begun := l.partial[c.fd]
	if c.flags&unexpected != 0 || len(begun) == 0 {
		return c.flags&unexpected != 0
	}
	line := l.line[:g.size]
	putMessage(line, g.message[:g.size], c.number, c.answered, g.intendedTime(c, c.answered))
	return !bytes.HasPrefix(line, begun)
}

// onAnswer counts the answer to the oldest unanswered message.
func (l *Loop) onAnswer(g *group, c *conn, index int32) {
	now := l.now()
	intended, raw := g.oldestUnanswered(c), now-c.lastSend
	if c.answered+1 < c.sent { // lastSend is that of a later message
		raw = now - intended
	}
	l.exchange(g, g.intendedTime(c, c.answered)).Answered++
	c.answered++
	if c.flags&lastWord != 0 && c.answered == c.sent {
		l.lastAwaited = max(l.lastAwaited-1, 0)
	}
	if int32(c.answered-c.lateMessage) >= 0 { // the late message itself is answered
		c.flags &^= sentLate
	}
	g.counts.Answers++
	of := g.latency(l.phase)
	of.Corrected.Record(time.Duration(now - intended))
	of.Raw.Record(time.Duration(raw))
	switch {
	case c.flags&silenced != 0:
	case g.Behaviour == PingPong:
		l.sendMessage(g, c, index)
	case g.Behaviour == Churn:
		g.counts.Ended++
		g.counts.Open--
		l.close(c, g.counts.Ended%2 == 0)
		l.reopen(g, index)
	}
}

func (g *group) latency(phase string) *result.Latency {
	of := g.counts.Latency[phase]
	if of == nil {
		if g.counts.Latency == nil {
			g.counts.Latency = map[string]*result.Latency{}
		}
		of = &result.Latency{Corrected: result.NewHistogram(), Raw: result.NewHistogram()}
		g.counts.Latency[phase] = of
	}
	return of
}
