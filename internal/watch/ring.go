package watch

import (
	"iter"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// Ring returns a picture of the wheel, with at most the given number of sectors.
func (s *Shard[C]) Ring(sectors int) reap.Ring {
	ring := newRing(s.Set.turn(), s.clock.Tick(), sectors, s.clock.Elapsed(), s.Schedule.wheel.Deadlines())
	ring.Loop, ring.Connections, ring.Reaped = int(s.Number), s.Open, s.Counters.Reaped.Export()
	return ring
}

// EmptyRing returns the ring of a shard without connections, for any goroutine.
func (w *Watcher) EmptyRing(number uint32, sectors int, reaped reap.Counts) reap.Ring {
	ring := newRing(w.Settings().turn(), w.Clock.Tick(), sectors, w.Clock.Elapsed(), func(func(time.Duration) bool) {})
	ring.Loop, ring.Reaped = int(number), reaped
	return ring
}

// turn returns the usual distance of deadlines from now: the longest of the timeouts that count
// from the last activity, or else the longest duration of the Config.
func (set *Settings) turn() (longest time.Duration) {
	lim := &set.Config.Limits
	if active := max(lim.Read, lim.Write, lim.All, lim.Heartbeat.Interval); active > 0 {
		return active + verdict.Share(active, lim.Jitter)
	}
	for _, s := range set.form.Table.Deadlines(set.Front) {
		longest = max(longest, s.Value)
	}
	return min(longest, set.Horizon)
}

// newRing returns the ring of a wheel with the given deadlines. It has at most the given number of
// sectors, which together are at least a turn.
func newRing(turn, tick time.Duration, sectors int, now mono.Time, deadlines iter.Seq[time.Duration]) reap.Ring {
	ticks := int(turn/tick) + 2 // the clock and the wheel round up
	sectors = min(sectors, ticks)
	n := (ticks + sectors - 1) / sectors
	width := time.Duration(n) * tick
	sectors = (ticks + n - 1) / n
	ring := reap.Ring{Turn: width * time.Duration(sectors), Now: time.Duration(now), Sectors: make([]int, sectors)}
	for due := range deadlines {
		if due-ring.Now >= ring.Turn {
			ring.Later++
			continue
		}
		ring.Sectors[due/width%time.Duration(sectors)]++
	}
	return ring
}
