package load

import (
	"slices"
	"time"
)

// runDue runs the actions that are due, in their order. It opens at most openBatch connections, so
// that events are handled in between. If a process is late with opening, the later actions wait.
func (l *Loop) runDue() {
	for now, opened := l.now(), 0; opened < openBatch && len(l.due) > 0 && l.due[0].due <= now; {
		c := l.due[0]
		due := c.due
		l.due.set(c, never)
		if c.state == free {
			l.open(c)
			opened++
			continue
		}
		l.delayed(now - due)
		switch {
		case c.state == connecting:
			l.openFailed(c, "connect: no answer for "+l.plan.Patience.String())
		case c.Behaviour == Churn:
			c.counts.Unanswered++
			l.missAnswers(c, c.whole(), 0)
			c.counts.Ended++
			c.counts.Open--
			l.close(c, true)
		case !c.silenced && !l.ending:
			l.act(c)
			if c.state == open {
				l.due.set(c, c.next(due))
			}
		}
	}
}

// act is the action of a connection in each interval.
func (l *Loop) act(c *conn) {
	switch c.Behaviour {
	case Heartbeat, HalfOpen:
		l.sendMessage(c)
	case Trickle:
		c.sent++
		c.asked++
		l.flush(c)
	case OneByte:
		if c.asked%int64(c.Size) == 0 {
			l.countMessage(c)
		}
		c.asked++
		l.flush(c)
	case SlowReader:
		l.readAvailable(c, slowChunk)
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
	unheard []*conn // the last ones that sent it, without an answer
	heardAt int64   // when the last answer came, or the first message was sent that waits
}

// sayLastWords sends last messages, until too many wait for an answer.
func (l *Loop) sayLastWords() {
	for w := &l.words; len(w.queue) > 0; {
		now, before := l.now(), len(w.unheard)
		w.unheard = slices.DeleteFunc(w.unheard, func(c *conn) bool { return c.answered == c.sent })
		switch {
		case len(w.unheard) < before || before == 0:
			w.heardAt = now
		case now > w.heardAt+int64(hearing):
			w.unheard, w.heardAt = nil, now
		case before == maxUnheard:
			return
		}
		c := w.queue[0]
		w.queue = w.queue[1:]
		l.silence(c)
		if c.state == open {
			w.unheard = append(w.unheard, c)
			l.sendMessage(c)
		}
	}
}
