package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sendMessage sends one message.
func (l *Loop) sendMessage(g *group, c *conn, index int32) {
	l.begin(g, c)
	c.unsent += int64(g.size)
	l.flush(g, c, index)
}

// begin counts a message that begins to be sent.
func (l *Loop) begin(g *group, c *conn) {
	c.unplanned = l.now()
	if c.flags&lastWord != 0 {
		c.unplanned = min(c.unplanned, g.messageTime(c, c.sent))
	}
	c.sent++
	g.counts.Messages++
	l.exchange(g, g.intendedTime(c, c.sent-1)).Sent++
}

// next returns the bytes that a connection sends next.
func (l *Loop) next(g *group, c *conn) []byte {
	from := int(c.wrote)
	if !g.Behaviour.Echoes() {
		return g.message[from : from+int(min(c.unsent, int64(len(g.message)-from)))]
	}
	line, size := l.line[:g.size], int64(g.size)
	k := c.sent - uint32((c.unsent+int64(from)+size-1)/size)
	putMessage(line, g.message[:g.size], c.number, k, g.intendedTime(c, k))
	return line[from : from+int(min(c.unsent, size-int64(from)))]
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
		next, before := l.next(g, c), l.now()
		if g.Timeout > 0 && before >= c.lastSend+int64(g.Timeout) {
			// The target may have closed the connection, and a successful write would hide that.
			c.flags |= sentLate
			c.lateMessage = c.sent
		}
		n, err := unix.Write(int(c.fd), next)
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
		c.wrote = uint32((int(c.wrote) + n) % int(g.size))
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

const (
	// lastWindow is the number of last messages that wait for their answers at the same time.
	// Without a limit they wait for each other in the target, which counts as its lateness.
	lastWindow = 16
	// lastWait is the longest wait for the answers to them.
	lastWait = 50 * time.Millisecond
)

// sendLastMessages sends last messages that are queued, up to the window.
func (l *Loop) sendLastMessages() {
	if len(l.last) == 0 {
		return
	}
	now := l.now()
	if now-l.lastAt >= int64(lastWait) {
		l.lastAwaited = 0
	}
	for len(l.last) > 0 && l.lastAwaited < lastWindow {
		index := l.last[0]
		l.last = l.last[1:]
		c := &l.conns[index]
		if g := l.groups[c.group]; c.state == open {
			c.flags |= lastWord
			l.lastAwaited++
			l.lastAt = now
			l.sendMessage(g, c, index)
		}
	}
}
