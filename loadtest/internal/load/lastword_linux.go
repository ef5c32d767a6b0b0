package load

import "time"

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

// mayGoOn reports whether the next one may be sent.
func (w *lastWords) mayGoOn(now int64) bool {
	if now > w.heardAt+int64(hearing) {
		w.unheard = 0
	}
	return len(w.queue) > 0 && w.unheard < maxUnheard
}

// heard notes that the target has answered all messages of a connection.
func (w *lastWords) heard(c *conn, now int64) {
	if c.flags&unheard != 0 && c.answered == c.sent {
		c.flags &^= unheard
		w.unheard = max(w.unheard-1, 0)
		w.heardAt = now
	}
}

// saveLastWord lets a connection send its last message as soon as the target has answered others.
func (l *Loop) saveLastWord(g *group, c *conn) {
	if c.state != open {
		l.silence(g, c)
		return
	}
	c.due = never // its next message is the last one
	l.words.queue = append(l.words.queue, c)
}

// sayLastWords sends last messages.
func (l *Loop) sayLastWords() {
	for l.words.mayGoOn(l.now()) {
		c := l.words.queue[0]
		l.words.queue = l.words.queue[1:]
		g := l.groups[c.group]
		l.silence(g, c)
		if c.state != open {
			continue
		}
		if l.words.unheard == 0 {
			l.words.heardAt = l.now()
		}
		l.words.unheard++
		c.flags |= unheard
		l.sendMessage(g, c)
	}
}
