package server

import (
	"sync"

	"github.com/idlewheel/idlewheel/idle"
)

// A shortage lowers the limit of the Reaper while descriptors are short, and restores it. A limit
// that an Update of the user has set in between stays. Safe for concurrent use.
type shortage struct {
	mu      sync.Mutex
	before  int // guarded by mu; the limit to restore
	lowered int // guarded by mu; the limit of the shortage, 0 if there is none
}

// begin lowers the limit to the number of open connections, if it is higher.
func (s *shortage) begin(r *idle.Reaper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit, n := r.Config().MaxConnections, max(r.Connections(), 1)
	if limit != 0 && n >= limit {
		return
	}
	if s.lowered == 0 || s.lowered != limit {
		s.before = limit
	}
	s.lowered = n
	setMaxConnections(r, n)
}

// end restores the limit.
func (s *shortage) end(r *idle.Reaper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lowered != 0 && r.Config().MaxConnections == s.lowered {
		setMaxConnections(r, s.before)
	}
	s.lowered = 0
}

// setMaxConnections changes the limit of the Reaper.
func setMaxConnections(r *idle.Reaper, n int) {
	_ = r.Update(func(cfg *idle.Config) { cfg.MaxConnections = n }) // the rest was checked before
}
