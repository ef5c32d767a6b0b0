package load

import "golang.org/x/sys/unix"

// sendMessage sends one message.
func (l *Loop) sendMessage(g *group, c *conn) {
	l.countMessage(g, c)
	c.unsent += int64(g.size)
	l.flush(g, c)
}

// countMessage counts a message that begins.
func (l *Loop) countMessage(g *group, c *conn) {
	c.sent++
	began, _ := g.times(c, c.sent-1, l.now())
	if phase := l.phases.at(began); phase != "" {
		g.counts.Messages++
		if g.Behaviour.Echoes() {
			g.exchange(phase).Sent++
		}
	}
}

// maxWrites is the number of writes of one connection before the others have a turn.
const maxWrites = 16

// flush sends unsent bytes until the kernel takes no more or maxWrites is reached.
func (l *Loop) flush(g *group, c *conn) {
	for writes := 0; c.unsent > 0 && writes < maxWrites; writes++ {
		before := l.now()
		if g.Timeout > 0 && before >= c.lastSend+int64(g.Timeout) {
			// The target may have closed the connection, and a successful write would hide that.
			c.flags |= sentLate
			c.lateMessage = c.sent
		}
		n, err := unix.Write(int(c.fd), g.unsent(c, before))
		if err == unix.EAGAIN {
			break
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			// The connection is closed. After a FIN, data from the target is still readable.
			c.unsent = 0
			c.flags |= reset
			l.readAvailable(g, c, readChunk)
			return
		}
		c.lastSend = before
		c.unsent -= int64(n)
		c.wrote = uint32((int(c.wrote) + n) % int(g.size))
	}
	l.wantWrite(g, c, c.unsent > 0)
}

// unsent returns the next bytes to send.
func (g *group) unsent(c *conn, now int64) []byte {
	from := int64(c.wrote)
	if !g.stamped() {
		return g.message[from : from+min(c.unsent, int64(len(g.message))-from)]
	}
	if from == 0 {
		c.moment = now
	}
	// Of the messages that were begun, those that wait after this one are unsent as a whole.
	waiting := (from + c.unsent - 1) / int64(g.size)
	stamp{c.number, c.sent - 1 - uint32(waiting), c.moment}.write(g.message)
	return g.message[from:min(from+c.unsent, int64(g.size))]
}

// wantWrite makes epoll report when the connection is writable, or no longer report it.
func (l *Loop) wantWrite(g *group, c *conn, want bool) {
	if want == (c.flags&wantWrite != 0) {
		return
	}
	c.flags ^= wantWrite
	if err := l.watch(g, c, unix.EPOLL_CTL_MOD); err != nil {
		panic("BUG: epoll_ctl: " + err.Error())
	}
}

// watch makes epoll report the events of a connection.
func (l *Loop) watch(g *group, c *conn, op int) error {
	events := uint32(unix.EPOLLRDHUP)
	if g.Behaviour.reads() {
		events |= unix.EPOLLIN
	}
	if c.flags&wantWrite != 0 {
		events |= unix.EPOLLOUT
	}
	return l.poller.control(op, int(c.fd), events, l.index(c))
}
