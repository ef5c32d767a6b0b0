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
func (l *Loop) onClosed(c *conn, err error) {
	now := l.now()
	c.counts.Open--
	if err != nil || c.reset {
		c.counts.Reset++
	}
	dead, deadline := c.isDead(), c.lastSend+int64(c.Timeout)
	if !c.sentLate() { // otherwise the missing answers are not the fault of the target
		l.missAnswers(c, c.whole(), 0)
		l.checkAnswers(c)
	}
	switch {
	case c.sentLate():
		c.counts.Starved++
	case l.ending && !dead && c.Timeout > 0 && now >= deadline:
		c.counts.Ended++ // it sends nothing any more
	case dead:
		l.countReaped(c, now, deadline)
	case c.Timeout > 0 && now >= deadline && c.wrote == c.asked:
		c.counts.Starved++ // this process did not send its message in time
	default:
		c.counts.Lost++
		c.counts.Said = cmp.Or(c.counts.Said, strings.TrimSpace(string(l.parts[c])))
	}
	l.close(c, false)
}

// countReaped counts a dead connection that the target closed.
func (l *Loop) countReaped(c *conn, now, deadline int64) {
	c.counts.Reaped++
	if c.unexpected || len(l.parts[c]) > 0 {
		c.counts.Told++
	}
	if !living(c.Behaviour) && c.Behaviour != Silent {
		c.counts.Lifetime.Record(time.Duration(now - c.intended))
	}
	if c.Timeout == 0 {
		return
	}
	if now < deadline {
		c.counts.Early++
		c.counts.EarliestBy = max(c.counts.EarliestBy, time.Duration(deadline-now))
		return
	}
	// If this process was late, the lateness is the least that is certain.
	c.counts.Lateness.Record(time.Duration(min(now, max(l.moments.certain, deadline)) - deadline))
}

// close closes a connection, with a RST if hard is set. One of a churn will be opened again.
func (l *Loop) close(c *conn, hard bool) {
	delete(l.parts, c)
	if hard {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	_ = unix.Close(int(c.fd))
	*c = conn{fd: -1, place: c.place, group: c.group, number: c.number, silenced: c.silenced}
	l.due.set(c, never)
	if c.Behaviour == Churn && !c.silenced {
		l.openLater(c)
	}
}

// vanish closes a connection without sending a packet, as if the machine lost its power
// (TCP_REPAIR). Without CAP_NET_ADMIN the connection stays open and silent.
func (l *Loop) vanish(c *conn) {
	l.silence(c)
	if c.state != open {
		return
	}
	if err := unix.SetsockoptInt(int(c.fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
		l.note(fmt.Sprintf("half-open connections only fall silent: TCP_REPAIR: %v: it needs CAP_NET_ADMIN", err))
		return
	}
	c.counts.Open--
	c.counts.Vanished++
	l.missAnswers(c, c.whole(), math.MaxInt64) // they are no fault of the target
	l.close(c, false)
}

// silence makes a connection stop sending.
func (l *Loop) silence(c *conn) {
	l.checkAnswers(c)
	c.silenced = true
}

// isDead reports whether the target should close the connection.
func (c *conn) isDead() bool { return c.silenced || !living(c.Behaviour) }

// checkAnswers counts missing and wrong answers of a living connection before it is closed or
// silenced.
func (l *Loop) checkAnswers(c *conn) {
	switch _, intended := c.times(c.answered, c.lastSend); {
	case c.isDead():
	case c.unexpected && c.answered < c.sent:
		c.counts.Garbled++
	case c.awaits() && l.now()-intended > int64(l.plan.Patience):
		c.counts.Unanswered++
	}
}

// missAnswers records how long the messages before the given one have waited for an answer, which
// will not come. Without this a target that hangs would look fast. It counts those that have waited
// for at least some time.
func (l *Loop) missAnswers(c *conn, before uint32, least time.Duration) {
	for k := c.answered; k < before && Echoes(c.Behaviour); k++ {
		began, intended := c.times(k, c.lastSend)
		waited, phase := time.Duration(l.now()-intended), l.phases.at(began)
		if phase == "" {
			continue
		}
		result.Of(&c.counts.Latency, phase).Unanswered.Record(waited)
		if waited >= least {
			result.Of(&c.counts.Exchanges, phase).Unanswered++
		}
	}
}
