package idle

import (
	"net"
	"slices"
	"sync"
	"time"
)

// Closed is the record of a reaped connection.
type Closed struct {
	At     time.Time
	Age    time.Duration
	Remote net.Addr
	Err    *ReapError
}

// closed returns the connections that were reaped last, in descending order of time.
func (r *Reaper) closed() []Closed {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.pastClosed)
	for _, l := range r.registry.Load().loops {
		all = append(all, l.closed.read()...)
	}
	return newest(all, r.settings.Load().cfg.KeepClosed)
}

// newest returns the newest entries, at most keep, in descending order of time.
func newest(all []Closed, keep int) []Closed {
	slices.SortFunc(all, func(a, b Closed) int { return b.At.Compare(a.At) })
	return all[:min(len(all), keep)]
}

// A closedRing keeps the last reaped connections of a loop. Safe for concurrent use.
type closedRing struct {
	mu   sync.Mutex
	kept []Closed // guarded by mu
	next int      // guarded by mu; index of the oldest entry if the ring is full
	keep int      // guarded by mu; the capacity
}

func (c *closedRing) add(l *loop, s *state, reason *ReapError) {
	keep := l.set.cfg.KeepClosed
	if keep == 0 {
		return
	}
	now := l.clock.Elapsed()
	opened := l.clock.Unpack(s.instants[atOpened], now)
	one := Closed{
		At: time.Now(), Age: max(now-opened, reason.Lasted), Remote: l.remote(s), Err: reason,
	}
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

func (c *closedRing) read() []Closed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.kept)
}
