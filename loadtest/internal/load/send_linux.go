package load

import (
	"golang.org/x/sys/unix"
)

// sendMessage sends one message.
func (l *Loop) sendMessage(g *group, c *conn, index int32) {
	c.sent++
	g.counts.Messages++
	c.unsent += int64(g.size)
	l.flush(g, c, index)
}

// maxWrites is the number of writes of one connection before the others have a turn.
const maxWrites = 16

// flush sends unsent bytes until the kernel takes no more or maxWrites is reached.
func (l *Loop) flush(g *group, c *conn, index int32) {
	for n := 0; c.unsent > 0; n++ {
		if n == maxWrites {
			l.wantWrite(g, c, index)
			return
		}
		from := int(c.wrote)
		to := from + int(min(c.unsent, int64(len(g.message)-from)))
		before := l.now()
		if g.Timeout > 0 && before >= c.lastSend+int64(g.Timeout) {
			// The target may have closed the connection, and a successful write would hide that.
			c.flags |= sentLate
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
			// The connection is closed. After a FIN, data from the target is still readable.
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

// wantWrite makes epoll report when the connection is writable.
func (l *Loop) wantWrite(g *group, c *conn, index int32) {
	if c.flags&wantWrite == 0 {
		c.flags |= wantWrite
		l.setInterest(g, c, index)
	}
}
