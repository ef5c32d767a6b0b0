package load

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// openDue begins the connections that are to be opened by now.
func (l *Loop) openDue() {
	for range openBatch {
		at, ok := l.openAt()
		if !ok || at > l.now() {
			return
		}
		place := l.queue[0]
		if l.queue = l.queue[1:]; len(l.queue) == 0 {
			l.queue = nil
		}
		l.begun++
		l.total++
		c := &l.conns[place]
		c.intended = at
		l.begin(l.groups[c.group], c, place)
	}
}

// begin begins to connect.
func (l *Loop) begin(g *group, c *conn, place int32) {
	n := l.plan.First + l.total
	fd, err := unix.Socket(l.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.giveUp(g, c, place, fmt.Sprintf("socket: %v", err))
		return
	}
	c.fd = int32(fd)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if !g.Behaviour.reads() {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096)
	}
	if l.sources != nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, l.sources[n%len(l.sources)]); err != nil {
			l.giveUp(g, c, place, fmt.Sprintf("bind to a source of %s: %v", l.plan.Source, err))
			return
		}
	}
	c.spoke = l.now()
	err = unix.Connect(fd, l.targets[n%len(l.targets)])
	if err != nil && err != unix.EINPROGRESS {
		l.giveUp(g, c, place, fmt.Sprintf("connect: %v", err))
		return
	}
	c.state = connecting
	if err := l.poll(unix.EPOLL_CTL_ADD, fd, unix.EPOLLOUT, place); err != nil {
		l.giveUp(g, c, place, fmt.Sprintf("epoll_ctl: %v", err))
		return
	}
	l.actAt(c, place, c.spoke+int64(l.plan.Patience))
}

// connected is told that a connection attempt has ended.
func (l *Loop) connected(g *group, c *conn, place int32) {
	errno, err := unix.GetsockoptInt(int(c.fd), unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && errno != 0 {
		err = unix.Errno(errno)
	}
	if err != nil {
		l.giveUp(g, c, place, fmt.Sprintf("connect: %v", err))
		return
	}
	now := l.now()
	c.state = open
	c.due = never // its patience for being connected is over
	g.found.Opened++
	g.found.Open++
	if g.found.Connect == nil {
		g.found.Connect = result.NewHistogram()
	}
	g.found.Connect.Record(time.Duration(now - c.intended))
	c.intended, c.base = now, now
	if g.Interval > 0 {
		c.base += int64((unit(uint64(c.number)) + g.Jitter) * float64(g.Interval)) // so that not all beat at once, and none before now
		c.base += g.grid()
	}
	l.watch(g, c, place)
	switch g.Behaviour {
	case Silent, PingPong, Churn:
		l.say(g, c, place)
	case SlowReader, ZeroWindow:
		c.unsent = forever
		l.flush(g, c, place)
	}
	switch {
	case c.state != open:
	case g.Behaviour == Churn:
		l.actAt(c, place, now+int64(l.plan.Patience))
	case g.Interval > 0 && g.Behaviour != Silent && g.Behaviour != Mute:
		l.actAt(c, place, g.next(c, now))
	}
}

// actAt lets a connection act at a moment, and not at the one that was said before.
func (l *Loop) actAt(c *conn, place int32, at int64) {
	c.due = at
	l.due.push(entry{at, place})
}

// actDue lets those act whose time has come.
func (l *Loop) actDue() {
	for now := l.now(); ; {
		e, ok := l.due.pop(now)
		if !ok {
			return
		}
		c := &l.conns[e.conn]
		if c.due != e.at || c.state == free {
			continue
		}
		l.behind = max(l.behind, now-e.at)
		g := l.groups[c.group]
		switch {
		case c.state == connecting:
			l.giveUp(g, c, e.conn, "connect: no answer for "+l.plan.Patience.String())
		case g.Behaviour == Churn:
			g.found.Unanswered++
			g.found.Ended++
			g.found.Open--
			l.close(c, true)
			l.again(g, e.conn)
		case c.flags&silenced == 0:
			l.act(g, c, e.conn)
			if c.state == open {
				l.actAt(c, e.conn, g.next(c, now))
			}
		}
	}
}

// act does what a connection does in each interval.
func (l *Loop) act(g *group, c *conn, place int32) {
	switch g.Behaviour {
	case Heartbeat, HalfOpen:
		l.say(g, c, place)
	case Trickle:
		c.sent++
		c.unsent++
		l.flush(g, c, place)
	case OneByte:
		if c.wrote == 0 {
			c.sent++
			g.found.Messages++
		}
		c.unsent++
		l.flush(g, c, place)
	case SlowReader:
		l.readable(g, c, place, slowChunk)
	}
}

// say sends a message.
func (l *Loop) say(g *group, c *conn, place int32) {
	c.sent++
	g.found.Messages++
	c.unsent += int64(g.size)
	l.flush(g, c, place)
}

// flush sends what is to be sent and the system takes, for a while: others wait.
func (l *Loop) flush(g *group, c *conn, place int32) {
	for n := 0; c.unsent > 0; n++ {
		if n == flushes {
			l.wantWrite(g, c, place)
			return
		}
		from := int(c.wrote)
		to := from + int(min(c.unsent, int64(len(g.message)-from)))
		before := l.now()
		if g.Timeout > 0 && before >= c.spoke+int64(g.Timeout) {
			c.flags |= late // it may be closed already: that this write succeeds would hide it
			c.lateSent = c.sent
		}
		n, err := unix.Write(int(c.fd), g.message[from:to])
		switch {
		case err == unix.EAGAIN:
			l.wantWrite(g, c, place)
			return
		case err == unix.EINTR:
			continue
		case err != nil:
			// It is closed. What the target has said before is still there to be read, if it was not reset.
			c.unsent = 0
			c.flags |= reset
			l.readable(g, c, place, readChunk)
			return
		}
		c.spoke = before
		c.unsent -= int64(n)
		c.wrote = uint32((from + n) % int(g.size))
	}
	if c.flags&wantWrite != 0 {
		c.flags &^= wantWrite
		l.watch(g, c, place)
	}
}

// flushes is how many writes one connection may make while others wait.
const flushes = 16

// wantWrite has the poller tell when a connection can be written to.
func (l *Loop) wantWrite(g *group, c *conn, place int32) {
	if c.flags&wantWrite == 0 {
		c.flags |= wantWrite
		l.watch(g, c, place)
	}
}

// poll tells the poller what to look for. What it is told lies in the loop, since it would be allocated each time.
func (l *Loop) poll(op, fd int, events uint32, place int32) error {
	l.asked = unix.EpollEvent{Events: events, Fd: place}
	return unix.EpollCtl(l.poller, op, fd, &l.asked)
}

// watch has the poller tell what happens to an open connection.
func (l *Loop) watch(g *group, c *conn, place int32) {
	events := uint32(unix.EPOLLRDHUP)
	if g.Behaviour.reads() {
		events |= unix.EPOLLIN
	}
	if c.flags&wantWrite != 0 {
		events |= unix.EPOLLOUT
	}
	if err := l.poll(unix.EPOLL_CTL_MOD, int(c.fd), events, place); err != nil {
		panic("BUG: epoll_ctl: " + err.Error())
	}
}

// readable reads what there is, at most so much if the connection is slow.
func (l *Loop) readable(g *group, c *conn, place int32, atMost int) {
	for c.state == open {
		n, err := unix.Read(int(c.fd), l.buf[:atMost])
		switch {
		case n > 0:
			l.received(g, c, place, l.buf[:n])
			if n < atMost || !g.Behaviour.reads() {
				return // the poller tells if there is more
			}
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return
		default:
			l.closed(g, c, place, err)
		}
	}
}

// received compares what comes with what was sent.
func (l *Loop) received(g *group, c *conn, place int32, b []byte) {
	if !g.Behaviour.Echoes() || c.flags&told != 0 {
		return
	}
	for len(b) > 0 {
		if c.answered == c.sent {
			c.flags |= told // it was not asked
			return
		}
		n := min(len(b), int(g.size-c.read))
		if !slices.Equal(b[:n], g.message[c.read:int(c.read)+n]) {
			c.flags |= told
			return
		}
		b = b[n:]
		if c.read += uint32(n); c.read == g.size {
			c.read = 0
			l.answer(g, c, place)
			if c.state != open {
				return
			}
		}
	}
}

// answer counts the answer to the oldest message that has none.
func (l *Loop) answer(g *group, c *conn, place int32) {
	now := l.now()
	intended, raw := g.oldest(c), now-c.spoke
	if c.answered+1 < c.sent { // others were sent after it: when it was sent itself is not known any more
		raw = now - intended
	}
	c.answered++
	if int32(c.answered-c.lateSent) >= 0 { // an answer to a message of before says nothing about the late one
		c.flags &^= late
	}
	g.found.Answers++
	of := g.latency(l.phase)
	of.Corrected.Record(time.Duration(now - intended))
	of.Raw.Record(time.Duration(raw))
	switch {
	case c.flags&silenced != 0:
	case g.Behaviour == PingPong:
		l.say(g, c, place)
	case g.Behaviour == Churn:
		g.found.Ended++
		g.found.Open--
		l.close(c, g.found.Ended%2 == 0)
		l.again(g, place)
	}
}

func (g *group) latency(phase string) *result.Latency {
	of := g.found.Latency[phase]
	if of == nil {
		if g.found.Latency == nil {
			g.found.Latency = map[string]*result.Latency{}
		}
		of = &result.Latency{Corrected: result.NewHistogram(), Raw: result.NewHistogram()}
		g.found.Latency[phase] = of
	}
	return of
}

// closed is told that the target has closed a connection, in order if err is nil.
func (l *Loop) closed(g *group, c *conn, place int32, err error) {
	now := l.now()
	g.found.Open--
	if err != nil || c.flags&reset != 0 {
		g.found.Reset++
	}
	deadline := c.spoke + int64(g.Timeout)
	dead := l.isDead(g, c)
	switch {
	case !dead:
		l.complain(g, c)
	case c.flags&told != 0:
		g.found.Told++
	}
	switch {
	case c.flags&late != 0:
		g.found.Starved++
	case dead:
		l.reaped(g, c, now, deadline)
	case g.Timeout > 0 && now >= deadline && c.unsent == 0:
		g.found.Starved++ // it was to say something, and this process did not come to it
	default:
		g.found.Lost++
	}
	l.close(c, false)
	l.again(g, place)
}

// reaped counts a dead connection that the target has closed.
func (l *Loop) reaped(g *group, c *conn, now, deadline int64) {
	g.found.Reaped++
	if !g.Behaviour.living() && g.Behaviour != Silent {
		if g.found.Lifetime == nil {
			g.found.Lifetime = result.NewHistogram()
		}
		g.found.Lifetime.Record(time.Duration(now - c.intended))
	}
	if g.Timeout == 0 {
		return
	}
	if now < deadline {
		g.found.Early++
		g.found.EarliestBy = max(g.found.EarliestBy, time.Duration(deadline-now))
		return
	}
	if g.found.Lateness == nil {
		g.found.Lateness = result.NewHistogram()
	}
	g.found.Lateness.Record(time.Duration(now - deadline))
}

// giveUp is told that a connection was not opened.
func (l *Loop) giveUp(g *group, c *conn, place int32, why string) {
	l.close(c, false)
	l.failed(g, why)
	l.again(g, place)
}

// failed counts a connection that was not opened.
func (l *Loop) failed(g *group, why string) {
	g.found.OpenFailed++
	l.fails[why]++
}

// again lets a connection of a churn be opened anew.
func (l *Loop) again(g *group, place int32) {
	if g.Behaviour == Churn && l.conns[place].flags&silenced == 0 {
		l.queue = append(l.queue, place)
	}
}

// close closes a connection, by a reset if it is to leave nothing behind.
func (l *Loop) close(c *conn, hard bool) {
	if c.fd < 0 {
		return
	}
	if hard {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(int(c.fd))
	*c = conn{fd: -1, group: c.group, number: c.number, flags: c.flags & silenced}
}

// vanish lets the system forget a connection without a word to the target, as when a machine loses its power: in repair mode (TCP_REPAIR)
// it sends nothing. Without CAP_NET_ADMIN the connection only falls silent.
func (l *Loop) vanish(g *group, c *conn) {
	if c.state != open {
		return
	}
	if err := unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
		note := fmt.Sprintf("connections cannot vanish (%v) and only fall silent: it needs CAP_NET_ADMIN", err)
		if !slices.Contains(l.notes, note) {
			l.notes = append(l.notes, note)
		}
		return
	}
	g.found.Open--
	g.found.Ended++
	l.close(c, false)
}
