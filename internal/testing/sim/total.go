package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// The oracle of OutputLimit.Total. Output is seen when OnOpen or OnTraffic of its connection
// returns. The server learns at its next check that less of it waits.

// Returned is called when the handler has returned without a close. One call of the server closes
// at most batch connections for the total.
func (l *Life) Returned(batch int) {
	total := l.w.Set.OutputLimit.Total
	if total == 0 || !l.IsOpen {
		return
	}
	l.now.seen = When(!l.now.exempt, l.Conn.OutboundBuffered())
	l.w.watchOutput()
	all := l.w.seenOutput()
	l.w.shedsMore = all > total+total/8 && (l.w.shedsMore || l.Loop.Sheds == batch) // in tasks
	if all <= total+total/8 || l.w.shedsMore || l.w.observes {
		return
	}
	own := func(other *Life) bool { return other.Loop == l.Loop && other.counted() > 0 }
	if slices.ContainsFunc(l.w.All, own) {
		l.w.Violate(l, fmt.Sprintf("output of all connections is at most %d after OnTraffic, or all of this loop are closed",
			total+total/8), "it is %d", all)
	}
}

// counted returns the seen output if the limit applies to the connection.
func (l *Life) counted() int {
	return When(l.IsOpen && !l.now.exempt && !l.now.ended && l.Loop.Handles != l, l.now.seen)
}

func (w *World) seenOutput() (sum int) {
	for _, l := range w.All {
		sum += l.counted()
	}
	return sum
}

// watchOutput checks that the total is not exceeded for long.
func (w *World) watchOutput() {
	total := w.Set.OutputLimit.Total
	if total == 0 || w.Failed() || w.observes {
		return
	}
	if w.seenOutput() <= total {
		w.overSince = 0
		return
	}
	w.overSince = cmp.Or(w.overSince, w.Now)
	away := time.Duration(0)
	for _, l := range w.All {
		if l.counted() > 0 {
			away = max(away, l.absence(w.overSince))
		}
	}
	if due := w.overSince + w.Slack() + away; w.Now > due {
		largest := slices.MaxFunc(w.All, func(a, b *Life) int { return cmp.Compare(a.counted(), b.counted()) })
		w.Violate(largest, fmt.Sprintf("output of all connections is at most %d by %v", total, due),
			"it is %d at %v", w.seenOutput(), w.Now)
	}
}

// mayCount returns the most output that the server may still count for a connection.
func (l *Life) mayCount() (most int) {
	if !l.IsOpen || l.now.exempt {
		return 0
	}
	from := l.lastCheck()
	for _, o := range slices.Backward(l.outputs) {
		most = max(most, o.n)
		if o.at < from {
			break
		}
	}
	return most
}

// lastCheck returns an instant after which the server has certainly checked the output.
func (l *Life) lastCheck() time.Duration {
	for from := l.w.Now; ; {
		every := l.w.checkEvery()
		if l.Loop.wasQuiet(from) {
			every = max(every, 8*time.Second)
		}
		before := l.w.Now - every - l.w.Slack() - l.absence(from)
		if before >= from {
			return from
		}
		from = before
	}
}

// earlyTotal is early for OutputLimit.Total.
func (l *Life) earlyTotal(e *reap.Error) string {
	w, t, total := l.w, &l.asked, l.w.Set.OutputLimit.Total
	w.N["closed for Total"]++
	if total == 0 || e.LimitBytes != total || e.Bytes != t.outbound || t.outbound == 0 {
		return fmt.Sprintf("over limit: the report is about %d bytes of all connections, and %d of this one", total, t.outbound)
	}
	most := t.outbound
	for _, other := range w.All {
		if other != l {
			most += other.mayCount()
		}
	}
	least := total
	if l.Loop.shedAt >= l.Loop.Began { // it goes on until a part is free
		least -= total / 16
	}
	l.Loop.shedAt = w.Now
	l.Loop.Sheds++
	if most <= least {
		return fmt.Sprintf("over limit: all connections together have at most %d bytes, limit %d", most, total)
	}
	for _, other := range w.All { // spared ones count later
		mine := other.Loop == l.Loop || most <= total+total/8 // otherwise each loop closes its own
		if other != l && mine && other.counted() > t.outbound && !w.observes {
			return fmt.Sprintf("over limit: connection %d has %d bytes, more than %d", other.ID, other.counted(), t.outbound)
		}
	}
	return ""
}
