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
