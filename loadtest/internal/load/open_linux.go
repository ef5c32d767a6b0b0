package load

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A queue is the connections that are to be opened, in order.
type queue struct {
	indexes []int32
	from    int64 // time at which the queue became non-empty
	begun   int   // connections opened since then
}

// add adds the connections of a group.
func (q *queue) add(g *group, now int64) {
	if len(q.indexes) == 0 {
		q.from, q.begun = now, 0
	}
	for n := range g.Connections {
		q.indexes = append(q.indexes, int32(g.first+n))
	}
}

// next returns when the next connection is to be opened, and false if the queue is empty.
func (q *queue) next(plan *Plan) (int64, bool) {
	if len(q.indexes) == 0 {
		return 0, false
	}
	return q.from + plan.opensAt(q.begun), true
}

// openDue opens the connections that are due, at most openBatch.
func (l *Loop) openDue() {
	for range openBatch {
		at, ok := l.queue.next(&l.plan)
		if !ok || at > l.now() || l.ending {
			return
		}
		index := l.queue.indexes[0]
		if l.queue.indexes = l.queue.indexes[1:]; len(l.queue.indexes) == 0 {
			l.queue.indexes = nil
		}
		c := &l.conns[index]
		if c.flags&silenced != 0 && l.groups[c.group].Behaviour == Churn { // the churn has ended
			continue
		}
		l.phases.delayed(l.now() - at)
		l.queue.begun++
		l.total++
		c.intended = at
		l.connect(l.groups[c.group], c, index)
	}
}

// connect starts to connect.
func (l *Loop) connect(g *group, c *conn, index int32) {
	n := l.plan.First + l.total
	fd, err := unix.Socket(l.addresses.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.openFailed(g, c, index, fmt.Sprintf("socket: %v", err))
		return
	}
	c.fd = int32(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if !g.Behaviour.reads() {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	}
	if l.addresses.sources != nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, l.addresses.sources[n%len(l.addresses.sources)]); err != nil {
			l.openFailed(g, c, index, fmt.Sprintf("bind to an address of %s: %v", l.plan.Source, err))
			return
		}
	}
	c.lastSend = l.now()
	err = unix.Connect(fd, l.addresses.targets[n%len(l.addresses.targets)])
	if err != nil && err != unix.EINPROGRESS {
		l.openFailed(g, c, index, fmt.Sprintf("connect: %v", err))
		return
	}
	c.state = connecting
	if err := l.poller.control(unix.EPOLL_CTL_ADD, fd, unix.EPOLLOUT, index); err != nil {
		l.openFailed(g, c, index, fmt.Sprintf("epoll_ctl: %v", err))
		return
	}
	l.setDue(c, index, c.lastSend+int64(l.plan.Patience))
}

// onConnected handles the end of a connection attempt.
func (l *Loop) onConnected(g *group, c *conn, index int32) {
	errno, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	if err != nil {
		l.openFailed(g, c, index, fmt.Sprintf("connect: %v", err))
		return
	}
	now := l.now()
	c.state = open
	c.due = never // cancels the limit for connecting
	g.counts.Opened++
	g.counts.Open++
	result.Record(&g.counts.Connect, time.Duration(now-c.intended))
	c.intended, c.base = now, now
	if g.Interval > 0 {
		// Heartbeats are spread over the interval, and none is due before now.
		c.base += int64((randomUnit(uint64(c.number)) + g.Jitter) * float64(g.Interval))
		c.base += g.grid()
	}
	l.poller.watch(c, index, g.Behaviour.reads())
	switch {
	case l.ending:
	case g.Behaviour == Silent, g.Behaviour == PingPong, g.Behaviour == Churn:
		l.sendMessage(g, c, index)
	case !g.Behaviour.reads():
		c.unsent = endless
		l.flush(g, c, index)
	}
	switch {
	case c.state != open:
	case g.Behaviour == Churn:
		l.setDue(c, index, now+int64(l.plan.Patience))
	case g.Interval > 0 && g.Behaviour != Silent && g.Behaviour != Mute:
		l.setDue(c, index, g.next(c, now))
	}
}

// openFailed closes a connection that could not be opened.
func (l *Loop) openFailed(g *group, c *conn, index int32, why string) {
	l.close(c, index, false)
	l.countFailure(g, why)
	l.reopen(g, index)
}

// countFailure counts a connection that could not be opened.
func (l *Loop) countFailure(g *group, why string) {
	g.counts.OpenFailed++
	l.failures[why]++
}

// reopen puts a connection of a churn back into the queue.
func (l *Loop) reopen(g *group, index int32) {
	if g.Behaviour == Churn && l.conns[index].flags&silenced == 0 {
		l.queue.indexes = append(l.queue.indexes, index)
	}
}
