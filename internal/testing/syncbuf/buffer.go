// Package syncbuf has a buffer for tests that one goroutine reads while another one writes.
package syncbuf

import (
	"strings"
	"sync"
)

// A Buffer is a strings.Builder that is safe for concurrent use. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the text written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
