package watch

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

func (w *Watcher) untilTick() time.Duration {
	now, tick := w.Clock.Elapsed(), w.Clock.Tick()
	return now.Truncate(tick).Add(tick).Sub(now)
}

// Drive is the loop of the driver. It calls round in each tick, and a pause after a call of Wake.
// It ends when stop is closed or round reports false.
func (w *Watcher) Drive(stop <-chan struct{}, pause time.Duration, round func() (more bool)) {
	timer := time.NewTimer(w.untilTick())
	woken := false
	for {
		select {
		case <-stop:
			return
		case <-w.Wakes:
			if !woken { // the first of several calls sets the time
				timer.Reset(min(pause, w.untilTick()))
				woken = true
			}
			continue
		case <-timer.C:
		}
		if !round() {
			return
		}
		timer.Reset(w.untilTick())
		woken = false
	}
}

// Wake requests a round before the next tick.
func (w *Watcher) Wake() {
	select {
	case w.Wakes <- struct{}{}:
	default:
	}
}

// lagWindow is the length of a window. A delay of the driver is remembered for one to two windows,
// which is longer than the usual time between two scrapes of a monitor.
const lagWindow = 10 * time.Second

// noteLag notes how late the driver is at an instant. The caller holds mu.
func (w *Watcher) noteLag(at mono.Time) { w.lag.Add(at.Sub(w.due), at, lagWindow) }
