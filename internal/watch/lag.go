package watch

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// lagWindow is the length of a window. A lag is remembered for one to two windows, which is longer
// than the usual time between two scrapes of a monitor.
const lagWindow = 10 * time.Second

// A lag remembers the greatest delay of the driver.
type lag struct {
	due     mono.Time // the time of the next round
	longest mono.Longest
}

// ran is called after a round. The next round is due after the given time.
func (l *lag) ran(at mono.Time, next time.Duration) {
	l.longest.Add(at.Sub(l.due), at, lagWindow)
	l.due = at.Add(next)
}

// worst returns the greatest delay of the last two windows. It includes the present delay of a
// driver that runs.
func (l *lag) worst(at mono.Time, runs bool) time.Duration {
	if runs {
		l.longest.Add(at.Sub(l.due), at, lagWindow)
	}
	return l.longest.Worst(at, lagWindow)
}
