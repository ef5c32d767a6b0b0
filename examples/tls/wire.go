package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"

	"github.com/panjf2000/gnet/v2"
)

const maxHandshake = 128 << 10 // bytes that wait for the goroutine of the handshake

// A wire is the net.Conn below a tls.Conn. The methods that it lacks are those of the gnet.Conn.
// Safe for concurrent use.
type wire struct {
	gnet.Conn
	tls *tls.Conn // owned by the goroutine of the handshake, and then by the loop goroutine

	mu      sync.Mutex
	changed *sync.Cond   // of the fields below
	in      bytes.Buffer // guarded by mu; encrypted bytes of the client
	ready   bool         // guarded by mu; the handshake is over
	ended   bool         // guarded by mu; the connection is closed
}

var _ net.Conn = (*wire)(nil)

func newWire(c gnet.Conn) *wire {
	w := &wire{Conn: c}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// feed adds bytes of the client. It reports false if too many wait.
func (w *wire) feed(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in.Write(b)
	w.changed.Signal()
	return w.ready || w.in.Len() <= maxHandshake
}

func (w *wire) endHandshake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = true
}

func (w *wire) isReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready
}

// end ends a Read of the handshake.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.changed.Signal()
}

// Read waits for bytes during the handshake. After it the loop goroutine reads, and may not wait.
func (w *wire) Read(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.in.Len() == 0 && !w.ended && !w.ready {
		w.changed.Wait()
	}
	switch {
	case w.in.Len() > 0:
		return w.in.Read(b)
	case w.ended:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, os.ErrDeadlineExceeded
}

// Write writes from the goroutine of the handshake, and later from the loop goroutine.
func (w *wire) Write(b []byte) (int, error) {
	if w.isReady() {
		return w.Conn.Write(b)
	}
	return len(b), w.AsyncWrite(bytes.Clone(b), nil)
}
