package load

import (
	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// sendMessage sends one message.
func (l *Loop) sendMessage(c *conn) {
	l.countMessage(c)
	c.asked += int64(c.Size)
	l.flush(c)
}

// countMessage counts a message that begins.
func (l *Loop) countMessage(c *conn) {
	c.sent++
	began, _ := c.times(c.sent-1, l.now())
	if phase := l.phases.at(began); phase != "" {
		c.counts.Messages++
		if Echoes(c.Behaviour) {
			result.Of(&c.counts.Exchanges, phase).Sent++
		}
	}
}

// maxWrites is the number of writes of one connection before the others have a turn.
const maxWrites = 16

// flush sends unsent bytes until the kernel takes no more or maxWrites is reached.
func (l *Loop) flush(c *conn) {
	for writes := 0; c.wrote < c.asked && writes < maxWrites; writes++ {
		before := l.now()
		if c.Timeout > 0 && before >= c.lastSend+int64(c.Timeout) {
			// The target may have closed the connection, and a successful write would hide that.
			c.lateMessage = c.sent
		}
		n, err := unix.Write(int(c.fd), c.unsent(before))
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			// The connection is closed. After a FIN, data from the target is still readable.
			c.wrote = c.asked
			c.reset = true
			l.readAvailable(c, readChunk)
			return
		}
		c.lastSend = before
		c.wrote += int64(n)
	}
	if want := c.wrote < c.asked; want != c.wantWrite {
		c.wantWrite = want
		if err := l.watch(c, unix.EPOLL_CTL_MOD); err != nil {
			panic("BUG: epoll_ctl: " + err.Error())
		}
	}
}

// unsent returns the next bytes to send.
func (c *conn) unsent(now int64) []byte {
	from := c.wrote % int64(c.Size)
	if c.stamped() {
		if from == 0 {
			c.moment = now
		}
		stamp{c.number, c.whole(), c.moment}.write(c.message)
	}
	return c.message[from:min(from+c.asked-c.wrote, int64(len(c.message)))]
}

// watch makes epoll report the events of a connection.
func (l *Loop) watch(c *conn, op int) error {
	events := uint32(unix.EPOLLRDHUP)
	if reads(c.Behaviour) {
		events |= unix.EPOLLIN
	}
	if c.wantWrite {
		events |= unix.EPOLLOUT
	}
	return unix.EpollCtl(l.poller.fd, op, int(c.fd), &unix.EpollEvent{Events: events, Fd: int32(c.number) - int32(l.plan.First)})
}
