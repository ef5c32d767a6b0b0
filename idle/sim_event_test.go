package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// idle is called by OnIdle.
func (l *simLife) idle(ev Event) {
	l.check()
	if ev.Reason != reap.WriteIdle {
		if why := l.earlyIdle(ev.Reason); why != "" {
			l.w.violate(l, why, fmt.Sprintf("OnIdle was called at %v: %+v", l.w.now, ev))
			return
		}
	} else if due := max(l.asked.newSent, l.asked.anewFrom) + l.timeouts().Write; l.judged < due {
		l.w.violate(l, fmt.Sprintf("write idle: not before %v", due), fmt.Sprintf("OnIdle was called at %v: %+v", l.w.now, ev))
		return
	}
	l.checkEvent(ev)
	l.eventAt, l.deliveredAt = l.judged, l.w.now
	l.w.events++
}

// checkEvent checks the fields of an event.
func (l *simLife) checkEvent(ev Event) {
	t, last := &l.asked, l.asked.events[ev.Reason-reap.ReadIdle]
	earliest, latest := l.activity(t, ev.Reason)
	slack := l.w.slack()
	// The stamps are inexact while the driver is away.
	vague := l.w.driverAway.since(earliest-l.w.cfg.Tick) + l.w.cfg.Tick + 22*time.Millisecond
	if earliest <= l.openedAt {
		earliest = l.acceptedAt
	}
	switch {
	case ev.First && last != 0 && latest < last-slack:
		l.w.violate(l, fmt.Sprintf("the first event since activity, which was at %v", latest), fmt.Sprintf("event %+v after one at %v", ev, last))
	case !ev.First && (last == 0 || earliest > t.delivered[ev.Reason-reap.ReadIdle]+slack):
		l.w.violate(l, "an event after activity is the first", fmt.Sprintf("event %+v at %v, activity at %v, last %v", ev, l.w.now, earliest, last))
	case last != 0 && last > t.anew && l.judged < max(last, l.changedAt)+l.limitOf(ev.Reason) && l.changedAt == 0:
		l.w.violate(l, fmt.Sprintf("one event in each timeout, the last was at %v", last), fmt.Sprintf("event %+v", ev))
	// The clock is read after the question.
	case ev.Idle < l.judged-latest-slack-vague || ev.Idle > l.w.now-earliest+slack+vague:
		l.w.violate(l, fmt.Sprintf("Idle is %v to %v", l.judged-latest, l.w.now-earliest), fmt.Sprintf("event %+v", ev))
	}
}

func (l *simLife) limitOf(k Reason) time.Duration {
	t := l.timeouts()
	return [...]time.Duration{t.Read, t.Write, t.All}[k-reap.ReadIdle]
}

// activity returns the bounds of the last activity that ends an idle state.
func (l *simLife) activity(t *simTruth, k Reason) (earliest, latest time.Duration) {
	switch k {
	case reap.ReadIdle:
		return max(t.arrival, t.anewFrom), t.heard()
	case reap.WriteIdle:
		return max(t.newSent, t.anewFrom), max(t.anySent, t.anew)
	}
	if l.w.family != simTCP {
		return max(t.arrival, t.anewFrom), t.heard()
	}
	return max(t.arrival, t.newSent, t.anewFrom), max(t.heard(), t.anySent)
}

// spared is called when OnIdle has kept the connection.
func (l *simLife) spared(k Reason) {
	l.now.events[k-reap.ReadIdle], l.now.delivered[k-reap.ReadIdle] = l.eventAt, l.deliveredAt
}
