package logging

import (
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// Interval is the shortest time between two warnings that one Limiter allows.
const Interval = time.Second

// A Limiter allows one warning per Interval. Each kind of warning has its own. The zero Limiter
// allows the first warning at once. Safe for concurrent use; it never blocks and does not allocate.
type Limiter struct {
	next atomic.Int64 // earliest time of the next warning, as AllowAt counts time
}

// start is the instant from which Allow counts.
var start = time.Now()

// Allow reports whether a warning may be logged now.
func (l *Limiter) Allow() bool { return l.AllowAt(mono.Time(time.Since(start))) }

// AllowAt is Allow for callers that have a clock of their own. The instant now must not be before
// the start of that clock. All calls for one Limiter use the same clock.
func (l *Limiter) AllowAt(now mono.Time) bool {
	next := l.next.Load()
	return int64(now) >= next && l.next.CompareAndSwap(next, int64(now.Add(Interval)))
}
