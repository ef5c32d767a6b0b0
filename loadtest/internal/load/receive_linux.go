package load

import (
	"slices"
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

// onReceived compares received bytes with the expected echo.
func (l *Loop) onReceived(g *group, c *conn, index int32, b []byte) {
	if !g.Behaviour.Echoes() || c.flags&unexpected != 0 {
		return
	}
	for len(b) > 0 {
		if c.answered == c.sent {
			c.flags |= unexpected // no message is waiting for an answer
			return
		}
		n := min(len(b), int(g.size-c.read))
		if !slices.Equal(b[:n], g.message[c.read:int(c.read)+n]) {
			c.flags |= unexpected
			return
		}
		b = b[n:]
		if c.read += uint32(n); c.read == g.size {
			c.read = 0
			l.onAnswer(g, c, index)
			if c.state != open {
				return
			}
		}
	}
}

// onAnswer counts the answer to the oldest unanswered message.
func (l *Loop) onAnswer(g *group, c *conn, index int32) {
	now := l.now()
	intended, raw := g.oldestUnanswered(c), now-c.lastSend
	if c.answered+1 < c.sent { // lastSend is that of a later message
		raw = now - intended
	}
	c.answered++
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
