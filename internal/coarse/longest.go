package coarse

import "time"

// Longest remembers the longest duration that was added within the last one to two windows. The
// zero Longest is empty. Not safe for concurrent use.
type Longest struct {
	until     time.Duration // end of the current window
	now, last time.Duration // maximum of the current window and of the previous one
}

// Add adds a duration at an instant.
func (l *Longest) Add(d, at, window time.Duration) {
	l.turn(at, window)
	l.now = max(l.now, d)
}

// Worst returns the longest duration of the current and the previous window.
func (l *Longest) Worst(at, window time.Duration) time.Duration {
	l.turn(at, window)
	return max(l.now, l.last)
}

// turn begins a new window if the current one has ended.
func (l *Longest) turn(at, window time.Duration) {
	if at < l.until {
		return
	}
	if l.last, l.now = l.now, 0; at >= l.until+window {
		l.last = 0
	}
	l.until = at + window
}
