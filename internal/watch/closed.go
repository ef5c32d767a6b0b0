package watch

import (
	"slices"
	"sync"

	"github.com/idlewheel/idlewheel/reap"
)

// A ClosedRing keeps the connections that were reaped last. Safe for concurrent use.
type ClosedRing struct {
	mu   sync.Mutex
	kept []reap.Closed // guarded by mu; in the order of Add
}

// Add adds an entry. If there are more than keep, the oldest are dropped.
func (c *ClosedRing) Add(one reap.Closed, keep int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, one) // which moves the entries to new memory when the old one is full
	c.kept = c.kept[max(len(c.kept)-keep, 0):]
}

// Newest returns the newest entries, at most n, in descending order of time.
func (c *ClosedRing) Newest(n int) []reap.Closed {
	c.mu.Lock()
	all := slices.Clone(c.kept)
	c.mu.Unlock() // sorting may take 10 ms
	slices.SortFunc(all, func(a, b reap.Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), n)]
}
