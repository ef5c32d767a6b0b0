package load

import "time"

const (
	// blocked is the length of a wait that has blocked.
	blocked = 50 * time.Microsecond
	// lateWake is how late the kernel may end a wait of a process that runs.
	lateWake = time.Millisecond
)

// moments bound the times of events. The loop is told of events, but not when they happened.
type moments struct {
	clear    int64 // all events until then are known
	certain  int64 // the events that are being handled happened then or later
	handling int64 // they should have been handled since then
}

// woke finds out when the events of a wait from began to woke happened at the earliest: when it
// ended, if it has blocked and the process was running. full says that there may be more events.
func (m *moments) woke(woke, began, until int64, full bool) {
	switch due := max(until, began); {
	case woke < began+int64(blocked): // they happened while the last ones were handled
		m.certain, m.handling = m.clear, m.clear
	case woke > due+int64(lateWake): // the process did not run
		m.certain, m.handling = began, due
	default:
		m.certain, m.handling = woke, woke
	}
	if !full {
		m.clear = woke
	}
}
