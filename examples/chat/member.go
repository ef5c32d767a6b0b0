package main

import (
	"fmt"
	"sync"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/idle"
)

// maxNext is the most bytes of lines that wait for the event loop, more than it reads at once.
const maxNext = 128 << 10

// A member is a client. Its event loop writes to it.
type member struct {
	c    gnet.Conn
	conn idle.Conn

	mu      sync.Mutex // guards the fields below
	next    []byte     // lines for the next write
	dropped int        // lines after these that had no room
	writes  bool       // the event loop will write what there is
}

// add keeps a line for the next write, or drops it. It reports whether the event loop must be told.
func (m *member) add(line []byte) (tell bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dropped > 0 || len(m.next)+len(line) > maxNext {
		m.dropped++
	} else {
		m.next = append(m.next, line...)
	}
	tell, m.writes = !m.writes, true
	return tell
}

// take returns the bytes of the next write.
func (m *member) take() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.next
	if m.dropped > 0 {
		b = fmt.Appendf(b, "* %d lines dropped\n", m.dropped)
	}
	m.next, m.dropped, m.writes = nil, 0, len(b) > 0
	return b
}

// write writes while the member is writable. It is called on the event loop, by OnWritable again
// when the member has read.
func (m *member) write() {
	for m.conn.Writable() {
		b := m.take()
		if len(b) == 0 {
			return
		}
		_, _ = m.c.Write(b) // an error closes the connection
	}
}
