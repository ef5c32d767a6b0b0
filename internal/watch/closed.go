package watch

import (
	"slices"
	"sync"

	"github.com/idlewheel/idlewheel/reap"
)

// A ClosedRing keeps the connections that were reaped last. Safe for concurrent use.
type ClosedRing struct {
	mu   sync.Mutex
	kept []reap.Closed // guarded by mu
	next int           // guarded by mu; index of the oldest entry if the ring is full
	keep int           // guarded by mu; the capacity
}

// Add adds an entry. If there are more than keep, the oldest is dropped.
func (c *ClosedRing) Add(one reap.Closed, keep int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep != c.keep { // Update has changed it
		c.kept, c.next, c.keep = c.newest(keep), 0, keep
		slices.Reverse(c.kept)
	}
	if len(c.kept) < keep {
		c.kept = append(c.kept, one)
		return
	}
	c.kept[c.next] = one
	c.next = (c.next + 1) % keep
}

// Newest returns the newest entries, at most n, in descending order of time.
func (c *ClosedRing) Newest(n int) []reap.Closed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest(n)
}

func (c *ClosedRing) newest(n int) []reap.Closed {
	all := slices.Clone(c.kept)
	slices.SortFunc(all, func(a, b reap.Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), n)]
}
