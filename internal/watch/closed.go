package watch

import (
	"slices"
	"sync"

	"github.com/idlewheel/idlewheel/reap"
)

// newest returns the newest entries, at most keep, in descending order of time.
func newest(all []reap.Closed, keep int) []reap.Closed {
	slices.SortFunc(all, func(a, b reap.Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), keep)]
}

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
		c.kept, c.next, c.keep = newest(c.kept, keep), 0, keep
		slices.Reverse(c.kept)
	}
	if len(c.kept) < keep {
		c.kept = append(c.kept, one)
		return
	}
	c.kept[c.next] = one
	c.next = (c.next + 1) % keep
}

// Read returns the entries, in no particular order.
func (c *ClosedRing) Read() []reap.Closed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.kept)
}
