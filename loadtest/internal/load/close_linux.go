package load

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// onClosed handles a close by the target; err is nil after a FIN.
func (l *Loop) onClosed(g *group, c *conn, index int32, err error) {
	now := l.now()
	g.counts.Open--
	if err != nil || c.flags&reset != 0 {
		g.counts.Reset++
	}
	deadline := c.lastSend + int64(g.Timeout)
	dead := l.isDead(g, c)
	// This process may not have sent its message in time.
	starved := c.flags&sentLate != 0 || !dead && g.Timeout > 0 && now >= deadline && c.unsent == 0
	switch {
	case starved:
		g.counts.Starved++
	case dead:
		if c.flags&unexpected != 0 || len(l.partial[c.fd]) > 0 {
			g.counts.Told++
		}
		l.countUnanswered(g, c, 0)
		l.countReaped(g, c, now, deadline)
	default:
		l.recordWait(g, c)
		l.countUnanswered(g, c, 0)
		g.counts.Lost++
	}
	l.close(c, false)
	l.reopen(g, index)
}

// countReaped counts a dead connection that the target closed.
func (l *Loop) countReaped(g *group, c *conn, now, deadline int64) {
	g.counts.Reaped++
	if !g.Behaviour.living() && g.Behaviour != Silent {
		if g.counts.Lifetime == nil {
			g.counts.Lifetime = result.NewHistogram()
		}
		g.counts.Lifetime.Record(time.Duration(now - c.intended))
	}
	if g.Timeout == 0 {
		return
	}
	if now < deadline {
		g.counts.Early++
		g.counts.EarliestBy = max(g.counts.EarliestBy, time.Duration(deadline-now))
		return
	}
	if g.counts.Lateness == nil {
		g.counts.Lateness = result.NewHistogram()
	}
	g.counts.Lateness.Record(time.Duration(now - deadline))
}

// close closes a connection, with a RST if hard is set.
func (l *Loop) close(c *conn, hard bool) {
	if c.fd < 0 {
		return
	}
	if hard {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(int(c.fd))
	delete(l.partial, c.fd)
	*c = conn{fd: -1, group: c.group, number: c.number, flags: c.flags & silenced}
}

// vanish closes a connection without sending a packet, as if the machine lost its power
// (TCP_REPAIR). Without CAP_NET_ADMIN the connection stays open and silent.
func (l *Loop) vanish(g *group, c *conn) {
	if c.state != open {
		return
	}
	if err := unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
		note := fmt.Sprintf("half-open connections only fall silent: TCP_REPAIR: %v: it needs CAP_NET_ADMIN", err)
		if !slices.Contains(l.notes, note) {
			l.notes = append(l.notes, note)
		}
		return
	}
	g.counts.Open--
	g.counts.Ended++
	l.close(c, false)
}

// silence makes a connection stop sending.
func (l *Loop) silence(g *group, c *conn) {
	if c.state == open && !l.isDead(g, c) {
		l.checkAnswers(g, c)
	}
	c.flags |= silenced
}

// isDead reports whether the target should close the connection.
func (l *Loop) isDead(g *group, c *conn) bool { return c.flags&silenced != 0 || !g.Behaviour.living() }

// checkAnswers counts missing and wrong answers of a living connection before this process closes
// or silences it.
func (l *Loop) checkAnswers(g *group, c *conn) {
	waited := l.recordWait(g, c)
	switch {
	case l.isGarbled(g, c):
		g.counts.Garbled++
	case waited > l.plan.Patience:
		g.counts.Unanswered++
	}
}

// recordWait records a long wait for a missing answer, and returns how long it is. Otherwise a
// target that hangs would look fast.
func (l *Loop) recordWait(g *group, c *conn) (waited time.Duration) {
	if g.Behaviour.Echoes() && c.answered < c.sent {
		waited = time.Duration(l.now() - g.oldestUnanswered(c))
	}
	if waited > max(g.Interval, minRecordedWait) {
		g.latency(l.phase).Corrected.Record(waited)
	}
	return waited
}

// minRecordedWait is the shortest wait for a missing answer that counts as a latency.
const minRecordedWait = 100 * time.Millisecond
