package idle

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/inspection"
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
			ring = newRing(l, r.settings.Load(), sectors, inspection.NoDeadlines)
			ring.Reaped = l.published.read().Reaped.Export()
		}
		rings = append(rings, ring)
	}
	slices.SortFunc(rings, func(a, b Ring) int { return cmp.Compare(a.Loop, b.Loop) })
	return rings, nil
}

// newRing returns the ring of a loop with the given deadlines.
func newRing(l *loop, set *settings, sectors int, deadlines iter.Seq[time.Duration]) Ring {
	return inspection.NewRing(l.number, set.cfg.turn(), l.clock.Tick(), sectors, l.clock.Elapsed(), deadlines)
}

// turn returns the usual distance of deadlines from now.
func (cfg *Config) turn() time.Duration {
	active := max(cfg.ReadTimeout, cfg.WriteTimeout, cfg.AllTimeout, cfg.Heartbeat.Interval)
	return inspection.Turn(active, cfg.Jitter, configtable.Idle.Deadlines(cfg), cfg.horizon())
}

func (l *loop) ring(sectors int) Ring {
	ring := newRing(l, l.set, sectors, l.wheel.Deadlines())
	ring.Connections, ring.Reaped = l.open, l.counters.Reaped.Export()
	return ring
}
