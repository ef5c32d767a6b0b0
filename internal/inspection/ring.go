package inspection

import (
	"iter"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// Turn returns the usual distance of deadlines from now: the longest of the timeouts that count
// from the last activity, or else the longest duration of a Config.
func Turn(active time.Duration, jitter float64, all []configtable.Deadline, horizon time.Duration) (longest time.Duration) {
	if active > 0 {
		return active + verdict.Share(active, jitter)
	}
	for _, s := range all {
		longest = max(longest, s.Value)
	}
	return min(longest, horizon)
}

// NewRing returns the ring of a wheel with the given deadlines. It has at most the given number of
// sectors, which together are at least a turn. Connections and Reaped are left to the caller.
func NewRing(number uint32, turn, tick time.Duration, sectors int, now mono.Time, deadlines iter.Seq[time.Duration]) reap.Ring {
	ticks := int(turn/tick) + 2 // the clock and the wheel round up
	sectors = min(sectors, ticks)
	n := (ticks + sectors - 1) / sectors
	width := time.Duration(n) * tick
	sectors = (ticks + n - 1) / n
	ring := reap.Ring{
		Loop: int(number), Turn: width * time.Duration(sectors), Now: time.Duration(now), Sectors: make([]int, sectors),
	}
	for due := range deadlines {
		if due-ring.Now >= ring.Turn {
			ring.Later++
			continue
		}
		ring.Sectors[due/width%time.Duration(sectors)]++
	}
	return ring
}

// NoDeadlines are the deadlines of a wheel without entries.
func NoDeadlines(func(time.Duration) bool) {}
