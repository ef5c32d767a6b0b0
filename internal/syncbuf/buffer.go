// Package syncbuf gives tests a buffer that can be read while it is written to.
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

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
