package mono

import "time"

// Longest remembers the longest duration that was added within the last one to two windows. The
// zero Longest is empty. Not safe for concurrent use.
type Longest struct {
	until     Time          // end of the current window
	now, last time.Duration // maximum of the current window and of the previous one
}

// Add adds a duration at an instant.
func (l *Longest) Add(d time.Duration, at Time, window time.Duration) {
	l.turn(at, window)
	l.now = max(l.now, d)
}

// Worst returns the longest duration of the current and the previous window.
func (l *Longest) Worst(at Time, window time.Duration) time.Duration {
	l.turn(at, window)
	return max(l.now, l.last)
}

// turn begins a new window if the current one has ended. It ends sooner if the windows have become
// shorter.
func (l *Longest) turn(at Time, window time.Duration) {
	if l.until = min(l.until, at.Add(window)); at < l.until {
		return
	}
	if l.last, l.now = l.now, 0; at >= l.until.Add(window) {
		l.last = 0
	}
	l.until = at.Add(window)
}
