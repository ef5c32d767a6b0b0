package load

import (
	"golang.org/x/sys/unix"
)

// say sends a message.
func (l *Loop) sendMessage(g *group, c *conn, index int32) {
	c.sent++
	g.counts.Messages++
	c.unsent += int64(g.size)
	l.flush(g, c, index)
}

// flushes is how many writes one connection may make while others wait.
const flushes = 16

// flush sends what is to be sent and the system takes, for a while: others wait.
func (l *Loop) flush(g *group, c *conn, index int32) {
	for n := 0; c.unsent > 0; n++ {
		if n == flushes {
			l.wantWrite(g, c, index)
			return
		}
		from := int(c.wrote)
		to := from + int(min(c.unsent, int64(len(g.message)-from)))
		before := l.now()
		if g.Timeout > 0 && before >= c.lastSend+int64(g.Timeout) {
			c.flags |= sentLate // it may be closed already: that this write succeeds would hide it
			c.lateMessage = c.sent
		}
		n, err := unix.Write(int(c.fd), g.message[from:to])
		switch {
		case err == unix.EAGAIN:
			l.wantWrite(g, c, index)
			return
		case err == unix.EINTR:
			continue
		case err != nil:
			// It is closed. What the target has said before is still there to be read, if it was not reset.
			c.unsent = 0
			c.flags |= reset
			l.readAvailable(g, c, index, readChunk)
			return
		}
		c.lastSend = before
		c.unsent -= int64(n)
		c.wrote = uint32((from + n) % int(g.size))
	}
	if c.flags&wantWrite != 0 {
		c.flags &^= wantWrite
		l.setInterest(g, c, index)
	}
}

// wantWrite has the poller tell when a connection can be written to.
func (l *Loop) wantWrite(g *group, c *conn, index int32) {
	if c.flags&wantWrite == 0 {
		c.flags |= wantWrite
		l.setInterest(g, c, index)
	}
}
