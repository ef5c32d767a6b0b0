package idle

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/setting"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Ring is a picture of the timing wheel of an event loop. See [reap.Ring].
type Ring = reap.Ring

// rings returns the ring of each loop.
func (r *Reaper) rings(ctx context.Context, sectors int) ([]Ring, error) {
	var rings []Ring
	for _, l := range r.registry.Load().loops {
		var ring Ring
		ran, err := r.runOn(ctx, l, func() { ring = l.ring(sectors) })
		if err != nil {
			return nil, err
		}
		if !ran { // the loop has no connections
			ring, _ = newRing(l, r.settings.Load(), sectors)
			ring.Reaped = l.published.read().Reaped.Export()
		}
		rings = append(rings, ring)
	}
	slices.SortFunc(rings, func(a, b Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	return rings, nil
}

// newRing returns an empty ring, and the width of its sectors.
func newRing(l *loop, set *settings, sectors int) (ring Ring, width time.Duration) {
	ticks := int(set.cfg.turn()/l.clock.Tick()) + 2 // the clock and the wheel round up
	sectors = min(sectors, ticks)
	n := (ticks + sectors - 1) / sectors
	width = time.Duration(n) * l.clock.Tick()
	sectors = (ticks + n - 1) / n
	return Ring{
		Loop: int(l.number), Turn: width * time.Duration(sectors),
		Now: time.Duration(l.clock.Elapsed()), Sectors: make([]int, sectors),
	}, width
}

// turn returns the usual distance of deadlines from now.
func (cfg *Config) turn() (longest time.Duration) {
	for _, s := range cfg.stamped() {
		longest = max(longest, s.Value)
	}
	if longest > 0 {
		return longest + verdict.Share(longest, cfg.Jitter)
	}
	for _, s := range setting.Idle.Deadlines(cfg) {
		longest = max(longest, s.Value)
	}
	return min(longest, cfg.horizon())
}

func (l *loop) ring(sectors int) Ring {
	ring, width := newRing(l, l.set, sectors)
	ring.Connections, ring.Reaped = l.open, l.counters.Reaped.Export()
	for due := range l.wheel.Deadlines() {
		if due-ring.Now >= ring.Turn {
			ring.Later++
			continue
		}
		ring.Sectors[due/width%time.Duration(len(ring.Sectors))]++
	}
	return ring
}
