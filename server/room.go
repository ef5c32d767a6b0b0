package server

import (
	"cmp"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/logging"
)

// growth is the number of places that are given back together during a shortage: each change costs
// a pass over all connections.
const growth = 16

// A room has a place for each connection that may be open. Connections that find it full wait, and
// enter in their order. In a shortage other parts of the process use descriptors that were meant
// for connections. Then the room keeps places back, and the Reaper closes those connections that
// have been idle longest. Safe for concurrent use.
type room struct {
	reaper *idle.Reaper
	places *semaphore.Weighted
	taken  atomic.Int64 // places of connections

	mu      sync.Mutex
	limit   int // guarded by mu; of connections, 0 if there is none
	kept    int // guarded by mu; places that are kept back, 0 if there is no shortage
	before  int // guarded by mu; the limit of the Reaper to restore
	lowered int // guarded by mu; the limit of the Reaper that the shortage has set, 0 if none
}

// newRoom returns a room for a number of connections that may become larger, 0 if for any number.
func newRoom(limit int, r *idle.Reaper) *room {
	places := semaphore.NewWeighted(math.MaxInt64)
	if limit > 0 {
		places.TryAcquire(math.MaxInt64 - int64(limit))
	}
	return &room{limit: limit, reaper: r, places: places}
}

// size returns the limit of connections, 0 if there is none.
func (r *room) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit
}

// widen makes room for a number of connections, 0 for any number, if those are more than now. The
// Reaper has that limit already. In a shortage the new places are kept back, and the Reaper keeps
// the limit of the shortage.
func (r *room) widen(limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit == 0 {
		return
	}
	more := max(cmp.Or(limit, math.MaxInt32)-r.limit, 0)
	r.limit += more
	if r.kept > 0 {
		r.kept += more
		r.boundReaper()
		return
	}
	r.places.Release(int64(more))
}

func (r *room) leave() {
	r.taken.Add(-1)
	r.places.Release(1)
}

// shrink keeps back all free places, except the last one of a room. It returns the number of places
// that are left, and whether a shortage begins with that.
func (r *room) shrink() (left int, begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.kept
	for n := r.limit; n > 0; n /= 2 {
		for r.places.TryAcquire(int64(n)) {
			r.kept += n
		}
	}
	if r.limit > 0 && r.kept == r.limit {
		r.kept--
		r.places.Release(1)
	}
	if r.kept > before {
		r.boundReaper()
	}
	return r.limit - r.kept, before == 0 && r.kept > 0
}

// grow gives places back, so that n are left if those are more than now. It reports whether the
// shortage is over. If an Update of the Reaper has raised its limit meanwhile, that of the shortage
// applies again.
func (r *room) grow(n int) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := r.kept - max(r.limit-n, 0)
	if more <= growth && more != r.kept {
		more = 0
	}
	r.kept -= more
	r.boundReaper() // first: the Reaper must refuse none that has entered
	r.places.Release(int64(more))
	return r.kept == 0
}

// boundReaper changes the limit of the Reaper to the places that are left, or restores it if the
// shortage is over. A limit that an Update of the user has set in between stays, unless it is
// higher. The caller holds the mutex.
func (r *room) boundReaper() {
	left := r.limit - r.kept
	before, lowered := r.before, r.lowered
	changeMaxConnections(r.reaper, func(now int) int {
		r.before, r.lowered = before, left
		if lowered == 0 || lowered != now {
			r.before = now
		}
		if r.kept == 0 || r.before != 0 && r.before <= left {
			r.lowered = 0
			return r.before
		}
		return left
	})
}

// changeMaxConnections changes the limit of the Reaper to what change returns for the present one.
// It calls change again if another Update comes in between. It makes no Update if the limit stays:
// an Update costs a pass over all connections.
func changeMaxConnections(r *idle.Reaper, change func(now int) int) {
	if now := r.Config().MaxConnections; change(now) == now {
		return
	}
	// The rest of the Config was checked before.
	_ = r.Update(func(cfg *idle.Config) { cfg.MaxConnections = change(cfg.MaxConnections) })
}

// pauses logs and counts the times in which clients wait for room. Safe for concurrent use.
type pauses struct {
	warning logging.Limiter
	count   atomic.Uint64

	mu      sync.Mutex
	waiting atomic.Int64 // changed under mu; clients that wait
	logged  time.Time    // guarded by mu; when the present pause began, zero if it is not in the log
}

// begin counts a client that waits.
func (p *pauses) begin(log *slog.Logger, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Add(1) > 1 {
		return
	}
	n := p.count.Add(1)
	p.logged = time.Time{}
	if p.warning.Allow() {
		p.logged = time.Now()
		log.Warn("accepting is paused", "because", why, "pauses", n)
	}
}

// end takes that back. The server resumes accepting after the last one, if it is not stopping.
func (p *pauses) end(log *slog.Logger, resumes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.Add(-1) == 0 && resumes && !p.logged.IsZero() {
		log.Warn("accepting resumes", "after", time.Since(p.logged))
	}
}
