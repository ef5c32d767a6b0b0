package server

import (
	"sync"
	"time"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server/internal/descriptor"
)

// shortagePoll is the interval at which the descriptors in use are counted during a shortage.
const shortagePoll = 500 * time.Millisecond

// growth is the number of connections below which the room does not grow during a shortage: each
// change costs a pass over all connections.
const growth = 16

// A shortage is a time in which other parts of the process use descriptors that were meant for
// connections. Meanwhile there is room for fewer connections, and the Reaper closes those that have
// been idle longest.
type shortage struct {
	mu      sync.Mutex
	active  bool // guarded by mu
	before  int  // guarded by mu; the limit of the Reaper to restore
	lowered int  // guarded by mu; the limit of the Reaper that the shortage has set, 0 if none
}

// hasDescriptor reports whether a descriptor is free below those that are kept in reserve.
func (a *acceptors) hasDescriptor() bool {
	fd, ok := descriptor.LowestFree()
	return ok && (a.full == 0 || fd < a.full)
}

// runShort begins a shortage, or makes it worse: there is room for the connections that have
// entered and no others.
func (a *acceptors) runShort() {
	s := &a.shortage
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.limit == 0 {
		return
	}
	a.resize(min(a.room.Taken(), a.room.Limit()))
	if !s.active {
		s.active = true
		a.log.Warn("descriptors are short: there is room for fewer connections", "room", a.room.Limit())
		a.running.Go(a.followDescriptors)
	}
}

// followDescriptors makes room again as descriptors become free, until there are enough.
func (a *acceptors) followDescriptors() {
	for sleep(a.accepting, shortagePoll) {
		// Connections are opened and closed while descriptors are counted.
		before := a.room.Taken()
		used, ok := descriptor.InUse()
		if ok && a.grow(min(before, a.room.Taken())+a.full-used) {
			a.log.Warn("descriptors suffice again", "room", a.limit)
			return
		}
	}
}

// grow changes the room to n connections if that is more. It reports whether the shortage is over.
func (a *acceptors) grow(n int) (over bool) {
	a.shortage.mu.Lock()
	defer a.shortage.mu.Unlock()
	n = min(n, a.limit)
	if n == a.limit || n > a.room.Limit()+growth {
		a.resize(n)
	}
	a.shortage.active = n < a.limit
	return !a.shortage.active
}

// resize changes the room to n connections, but to one at least, and the limit of the Reaper with
// it. The caller holds the mutex of the shortage.
func (a *acceptors) resize(n int) {
	n = max(n, 1)
	if n <= a.room.Limit() { // the Reaper must refuse none that has entered
		a.room.SetLimit(n)
		a.shortage.lower(a.reaper, n, n >= a.limit)
		return
	}
	a.shortage.lower(a.reaper, n, n >= a.limit)
	a.room.SetLimit(n)
}

// lower changes the limit of the Reaper to n, or restores it if the shortage is over. A limit that
// an Update of the user has set in between stays, unless it is higher.
func (s *shortage) lower(r *idle.Reaper, n int, over bool) {
	now := r.Config().MaxConnections
	if s.lowered == 0 || s.lowered != now {
		s.before = now
	}
	s.lowered = n
	if over || s.before != 0 && s.before <= n {
		n, s.lowered = s.before, 0
	}
	if n != now {
		setMaxConnections(r, n)
	}
}

// setMaxConnections changes the limit of the Reaper.
func setMaxConnections(r *idle.Reaper, n int) {
	_ = r.Update(func(cfg *idle.Config) { cfg.MaxConnections = n }) // the rest was checked before
}
