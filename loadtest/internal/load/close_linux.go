package load

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// onClosed handles a close by the target; err is nil after a FIN.
func (l *Loop) onClosed(g *group, c *conn, err error) {
	now := l.now()
	g.counts.Open--
	if err != nil || c.reset {
		g.counts.Reset++
	}
	dead, deadline := g.isDead(c), c.lastSend+int64(g.Timeout)
	if !c.sentLate() { // otherwise the missing answers are not the fault of the target
		l.missAnswers(g, c, g.whole(c), 0)
		if !dead {
			l.checkAnswers(g, c)
		}
	}
	switch {
	case c.sentLate():
		g.counts.Starved++
	case l.ending && !dead && g.Timeout > 0 && now >= deadline:
		g.counts.Ended++ // it sends nothing any more
	case dead:
		l.countReaped(g, c, now, deadline)
	case g.Timeout > 0 && now >= deadline && c.wrote == c.asked:
		g.counts.Starved++ // this process did not send its message in time
	default:
		g.counts.Lost++
		g.counts.Said = cmp.Or(g.counts.Said, strings.TrimSpace(string(l.parts[c])))
	}
	l.close(g, c, false)
}

// countReaped counts a dead connection that the target closed.
func (l *Loop) countReaped(g *group, c *conn, now, deadline int64) {
	g.counts.Reaped++
	if c.unexpected || len(l.parts[c]) > 0 {
		g.counts.Told++
	}
	if !g.Behaviour.living() && g.Behaviour != Silent {
		result.Record(&g.counts.Lifetime, time.Duration(now-c.intended))
	}
	if g.Timeout == 0 {
		return
	}
	if now < deadline {
		g.counts.Early++
		g.counts.EarliestBy = max(g.counts.EarliestBy, time.Duration(deadline-now))
		return
	}
	// If this process was late, the lateness is the least that is certain.
	result.Record(&g.counts.Lateness, time.Duration(min(now, max(l.moments.certain, deadline))-deadline))
}

// close closes a connection, with a RST if hard is set. One of a churn will be opened again.
func (l *Loop) close(g *group, c *conn, hard bool) {
	delete(l.parts, c)
	if hard {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(int(c.fd))
	*c = conn{fd: -1, place: c.place, group: c.group, number: c.number, silenced: c.silenced}
	l.due.set(c, never)
	if g.Behaviour == Churn && !c.silenced {
		l.openLater(c)
	}
}

// vanish closes a connection without sending a packet, as if the machine lost its power
// (TCP_REPAIR). Without CAP_NET_ADMIN the connection stays open and silent.
func (l *Loop) vanish(g *group, c *conn) {
	if c.state != open {
		return
	}
	if err := unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
		l.note(fmt.Sprintf("half-open connections only fall silent: TCP_REPAIR: %v: it needs CAP_NET_ADMIN", err))
		return
	}
	g.counts.Open--
	g.counts.Vanished++
	l.missAnswers(g, c, g.whole(c), math.MaxInt64) // they are no fault of the target
	l.close(g, c, false)
}

// silence makes a connection stop sending.
func (l *Loop) silence(g *group, c *conn) {
	if c.state == open && !g.isDead(c) {
		l.checkAnswers(g, c)
	}
	c.silenced = true
}

// isDead reports whether the target should close the connection.
func (g *group) isDead(c *conn) bool { return c.silenced || !g.Behaviour.living() }

// checkAnswers counts missing and wrong answers of a living connection before it is closed or
// silenced.
func (l *Loop) checkAnswers(g *group, c *conn) {
	waited := int64(0)
	if g.Behaviour.Echoes() && c.answered < g.whole(c) {
		_, intended := g.times(c, c.answered, c.lastSend)
		waited = l.now() - intended
	}
	switch {
	case c.unexpected && c.answered < c.sent:
		g.counts.Garbled++
	case waited > int64(l.plan.Patience):
		g.counts.Unanswered++
	}
}

// missAnswers records how long the messages before the given one have waited for an answer, which
// will not come. Without this a target that hangs would look fast. It counts those that have waited
// for at least some time.
func (l *Loop) missAnswers(g *group, c *conn, before uint32, least time.Duration) {
	for k := c.answered; k < before && g.Behaviour.Echoes(); k++ {
		began, intended := g.times(c, k, c.lastSend)
		waited, phase := time.Duration(l.now()-intended), l.phases.at(began)
		if phase == "" {
			continue
		}
		result.Record(&g.latency(phase).Unanswered, waited)
		if waited >= least {
			result.Of(&g.counts.Exchanges, phase).Unanswered++
		}
	}
}
