package server

import (
	"context"
	"slices"
	"sync"
)

// A room is the number of connections that may be open. Those that want to enter a full one wait
// and enter in their order. Safe for concurrent use.
type room struct {
	mu      sync.Mutex
	limit   int             // guarded by mu; 0 if there is none
	taken   int             // guarded by mu; above the limit after the limit was lowered
	waiting []chan struct{} // guarded by mu; each is closed when its connection may enter
}

// tryEnter reports whether there is room, and takes it.
func (r *room) tryEnter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tryEnterLocked()
}

func (r *room) tryEnterLocked() bool {
	if r.limit > 0 && (r.taken >= r.limit || len(r.waiting) > 0) {
		return false
	}
	r.taken++
	return true
}

// enter waits until there is room and takes it. It reports false if ctx is done before.
func (r *room) enter(ctx context.Context) bool {
	r.mu.Lock()
	if r.tryEnterLocked() {
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

// leave gives back the room of one connection.
func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
	r.admit()
}

// occupied returns the number of connections that have entered and not left.
func (r *room) occupied() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// size returns the limit.
func (r *room) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit
}

// resize changes the limit.
func (r *room) resize(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	r.admit()
}

// admit lets connections enter while there is room. The caller holds the mutex.
func (r *room) admit() {
	for len(r.waiting) > 0 && (r.limit == 0 || r.taken < r.limit) {
		r.taken++
		close(r.waiting[0])
		r.waiting = r.waiting[1:]
	}
}
