package idle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A Ring is the timing wheel of an event loop, seen from far enough away to be drawn: what waits in it by when it comes up. Its turn is
// the longest idle timeout, and not that of the wheel, which has slots to spare. A connection that was heard stays where it is until
// its slot comes up, and moves then.
type Ring struct {
	Loop        int // counts from 1
	Connections int
	Turn        time.Duration // of the hand
	Now         time.Duration // the hand stands at Now modulo Turn
	Sectors     []int         // the n-th holds what comes up in the n-th part of a turn
	Later       int           // what comes up after more than a turn, such as connections with timeouts of their own
	Reaped      Counts
}

// Rings returns the ring of each event loop that has had connections, in as many sectors as given, or fewer where a turn has fewer ticks.
// It asks the loops one after the other, and returns the error of ctx if that is over first. A loop needs 5 ns per connection, or 20 if
// it has a million, at once. Safe for concurrent use, but not from an event loop, for which it would wait.
func (r *Reaper) Rings(ctx context.Context, sectors int) ([]Ring, error) {
	if sectors < 1 {
		return nil, fmt.Errorf("idle: %d sectors of a ring: ask for at least one", sectors)
	}
	var rings []Ring
	for _, l := range r.registry.Load().loops {
		var ring Ring
		ran, err := r.ask(ctx, l, func() { ring = l.ring(sectors) })
		if err != nil {
			return nil, err
		}
		if !ran { // it has no connections
			ring, _ = newRing(l, r.settings.Load(), sectors)
			ring.Reaped = l.published.read().Reaped
		}
		rings = append(rings, ring)
	}
	slices.SortFunc(rings, func(a, b Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	return rings, nil
}

// newRing returns one in which nothing waits, and how wide its sectors are.
func newRing(l *loop, set *settings, sectors int) (ring Ring, width time.Duration) {
	ticks := int(set.cfg.turn()/l.clock.Tick()) + 2 // the clock and the wheel round up
	sectors = min(sectors, ticks)
	n := (ticks + sectors - 1) / sectors
	width = time.Duration(n) * l.clock.Tick()
	sectors = (ticks + n - 1) / n
	return Ring{
		Loop: int(l.number), Turn: width * time.Duration(sectors), Now: l.clock.Elapsed(), Sectors: make([]int, sectors),
	}, width
}

// turn returns how far ahead deadlines usually are.
func (cfg *Config) turn() (longest time.Duration) {
	for _, s := range cfg.stamped() {
		longest = max(longest, s.value)
	}
	if longest > 0 {
		return longest + verdict.Share(longest, cfg.Jitter)
	}
	for _, s := range cfg.durations() {
		longest = max(longest, s.value)
	}
	return min(longest, cfg.memory())
}

func (l *loop) ring(sectors int) Ring {
	ring, width := newRing(l, l.set, sectors)
	ring.Connections, ring.Reaped = l.open, l.counters.Reaped
	for slot := range l.wheel.Slots() {
		if slot.Due-ring.Now >= ring.Turn {
			ring.Later += slot.Entries
			continue
		}
		ring.Sectors[slot.Due/width%time.Duration(len(ring.Sectors))] += slot.Entries
	}
	return ring
}
