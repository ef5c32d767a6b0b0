// Package room bounds the number of open connections.
package room

import (
	"context"
	"slices"
	"sync"
)

// A Room is the number of connections that may be open. Connections that find it full wait, and
// enter in their order. The zero Room has no limit. Safe for concurrent use.
type Room struct {
	mu      sync.Mutex
	limit   int             // guarded by mu; 0 if there is none
	taken   int             // guarded by mu; above the limit after the limit was lowered
	waiting []chan struct{} // guarded by mu; each is closed when its connection may enter
}

// TryEnter reports whether there is room, and takes it.
func (r *Room) TryEnter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tryEnter()
}

func (r *Room) tryEnter() bool {
	if r.limit > 0 && (r.taken >= r.limit || len(r.waiting) > 0) {
		return false
	}
	r.taken++
	return true
}

// Enter waits until there is room and takes it. It reports false if ctx is done before.
func (r *Room) Enter(ctx context.Context) bool {
	r.mu.Lock()
	if r.tryEnter() {
		r.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	r.waiting = append(r.waiting, turn)
	r.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waiting, turn); i >= 0 {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		return false
	}
	return true // its turn has come meanwhile
}

// Leave gives back the room of one connection.
func (r *Room) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
	r.admit()
}

// Taken returns the number of connections that have entered and not left.
func (r *Room) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Limit returns the limit.
func (r *Room) Limit() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit
}

// SetLimit changes the limit.
func (r *Room) SetLimit(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	r.admit()
}

// admit lets connections enter while there is room. The caller holds the mutex.
func (r *Room) admit() {
	for len(r.waiting) > 0 && (r.limit == 0 || r.taken < r.limit) {
		r.taken++
		close(r.waiting[0])
		r.waiting = r.waiting[1:]
	}
}
