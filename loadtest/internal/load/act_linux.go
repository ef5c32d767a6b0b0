package load

import "time"

// setDue sets the time of the next action of a connection, and cancels an earlier one.
func (l *Loop) setDue(c *conn, at int64) {
	c.due = at
	l.due.push(entry{at, l.index(c)})
}

// runDue runs the actions that are due, in their order. It opens at most openBatch connections, so
// that events are handled in between. If a process is late with opening, the later actions wait.
func (l *Loop) runDue() {
	for now, opened := l.now(), 0; opened < openBatch; {
		e, ok := l.due.pop(now)
		if !ok {
			return
		}
		c := &l.conns[e.index]
		if c.due != e.at {
			continue
		}
		g := l.groups[c.group]
		if c.state == free {
			l.open(g, c)
			opened++
			continue
		}
		l.phases.delayed(now - e.at)
		switch {
		case c.state == connecting:
			l.openFailed(g, c, "connect: no answer for "+l.plan.Patience.String())
		case g.Behaviour == Churn:
			g.counts.Unanswered++
			l.missAnswers(g, c, 0)
			g.counts.Ended++
			g.counts.Open--
			l.close(g, c, true)
		case c.flags&silenced == 0 && !l.ending:
			l.act(g, c)
			if c.state == open {
				l.setDue(c, g.next(c, now))
			}
		}
	}
}

// act is the action of a connection in each interval.
func (l *Loop) act(g *group, c *conn) {
	switch g.Behaviour {
	case Heartbeat, HalfOpen:
		l.sendMessage(g, c)
	case Trickle:
		c.sent++
		c.unsent++
		l.flush(g, c)
	case OneByte:
		if c.wrote == 0 && c.unsent == 0 {
			l.countMessage(g, c)
		}
		c.unsent++
		l.flush(g, c)
	case SlowReader:
		l.readAvailable(g, c, slowChunk)
	}
}

const (
	// maxUnheard is the number of last messages that wait for an answer at the same time. More of
	// them would wait in the target, and their lateness would include that.
	maxUnheard = 16
	// hearing is the longest wait for such an answer.
	hearing = 50 * time.Millisecond
)

// lastWords are connections that are to send one message and then nothing, in order.
type lastWords struct {
	queue   []*conn
	unheard int   // sent ones without an answer
	heardAt int64 // when the last answer came, or the first message was sent that waits
}

// heard notes that the target has answered all messages of a connection.
func (w *lastWords) heard(c *conn, now int64) {
	if c.flags&unheard != 0 && c.answered == c.sent {
		c.flags &^= unheard
		w.unheard = max(w.unheard-1, 0)
		w.heardAt = now
	}
}

// sayLastWords sends last messages, until too many wait for an answer.
func (l *Loop) sayLastWords() {
	for w := &l.words; len(w.queue) > 0; {
		now := l.now()
		if now > w.heardAt+int64(hearing) {
			w.unheard = 0
		}
		if w.unheard == maxUnheard {
			return
		}
		c := w.queue[0]
		w.queue = w.queue[1:]
		g := l.groups[c.group]
		l.silence(g, c)
		if c.state != open {
			continue
		}
		if w.unheard == 0 {
			w.heardAt = now
		}
		w.unheard++
		c.flags |= unheard
		l.sendMessage(g, c)
	}
}
