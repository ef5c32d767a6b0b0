package idle

import (
	"fmt"
	"slices"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// The oracle of OutputLimit.Total. Output is seen when OnOpen or OnTraffic of its connection
// returns. Less of it may wait afterwards, and the Reaper learns that when it checks the output the
// next time.

// returned is called when a call of OnOpen or OnTraffic has returned.
func (l *simLife) returned(action gnet.Action) {
	total := l.w.cfg.OutputLimit.Total
	if total == 0 || !l.isOpen || action == gnet.Close {
		return
	}
	l.now.seen = 0
	if !l.now.exempt {
		l.now.seen = l.sock.conn.outbound
	}
	l.w.watchOutput()
	all := l.w.seenOutput()
	l.w.shedsMore = all > total+total/8 && (l.w.shedsMore || l.el.sheds == shedBatch) // in tasks
	if all <= total+total/8 || l.w.shedsMore {
		return
	}
	for _, other := range l.w.all {
		if other.el == l.el && other.counted() > 0 {
			l.w.violate(l, fmt.Sprintf("output of all connections is at most %d after OnTraffic, or all of this loop are closed",
				total+total/8), fmt.Sprintf("it is %d", all))
			return
		}
	}
}

// counted returns the seen output if the limit applies to the connection.
func (l *simLife) counted() int {
	if !l.isOpen || l.now.exempt || l.now.ended || l.el.handles == l.sock.conn {
		return 0
	}
	return l.now.seen
}

// seenOutput returns the seen output of all connections.
func (w *simWorld) seenOutput() (sum int) {
	for _, l := range w.all {
		sum += l.counted()
	}
	return sum
}

// watchOutput checks that the total is not exceeded for long.
func (w *simWorld) watchOutput() {
	total := w.cfg.OutputLimit.Total
	if total == 0 || w.failure != nil {
		return
	}
	if w.seenOutput() <= total {
		w.overSince = 0
		return
	}
	if w.overSince == 0 {
		w.overSince = w.now
	}
	var largest *simLife
	away := time.Duration(0)
	for _, l := range w.all {
		if l.counted() > 0 {
			away = max(away, l.absence(w.overSince))
			if largest == nil || l.counted() > largest.counted() {
				largest = l
			}
		}
	}
	if due := w.overSince + w.slack() + away; w.now > due {
		w.violate(largest, fmt.Sprintf("output of all connections is at most %d by %v", total, due), fmt.Sprintf("it is %d at %v", w.seenOutput(), w.now))
	}
}

// noteOutput is called when the output in the buffer of the loop has changed.
func (l *simLife) noteOutput(n int) {
	if l.w.cfg.OutputLimit.Total == 0 {
		return
	}
	l.outputs = append(l.outputs, simBytes{l.w.now, n})
	if n < l.now.seen {
		l.now.seen = n
		l.w.watchOutput()
	}
}

// mayCount returns the most output that the Reaper may still count for a connection.
func (l *simLife) mayCount() (most int) {
	if !l.isOpen || l.now.exempt {
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

// lastCheck returns an instant after which the Reaper has certainly checked the output of the
// connection.
func (l *simLife) lastCheck() time.Duration {
	for from := l.w.now; ; {
		every := l.w.checkEvery()
		if l.el.wasQuiet(from) {
			every = max(every, 8*time.Second)
		}
		before := l.w.now - every - l.w.slack() - l.absence(from)
		if before >= from {
			return from
		}
		from = before
	}
}

// earlyTotal returns the promise that was broken if a connection was closed for the total without
// need, otherwise "".
func (l *simLife) earlyTotal(e *ReapError) string {
	w, t, total := l.w, &l.asked, l.w.cfg.OutputLimit.Total
	w.totals++
	if total == 0 || e.LimitBytes != total || e.Bytes != t.outbound || t.outbound == 0 {
		return fmt.Sprintf("over limit: the report is about %d bytes of all connections, and %d of this one", total, t.outbound)
	}
	most := t.outbound
	for _, other := range w.all {
		if other != l {
			most += other.mayCount()
		}
	}
	least := total
	if l.el.shedAt >= l.el.began { // it goes on until a part is free
		least -= total / 16
	}
	l.el.shedAt = w.now
	l.el.sheds++
	if most <= least {
		return fmt.Sprintf("over limit: all connections together have at most %d bytes, limit %d", most, total)
	}
	for _, other := range w.all {
		switch {
		case other == l || other.counted() <= t.outbound:
		case other.el == l.el:
			return fmt.Sprintf("over limit: connection %d of the same loop has %d bytes, more than %d", other.id, other.counted(), t.outbound)
		case most <= total+total/8:
			return fmt.Sprintf("over limit: connection %d of another loop has %d bytes, more than %d", other.id, other.counted(), t.outbound)
		}
	}
	return ""
}
