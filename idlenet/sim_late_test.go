package idlenet

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/verdict"

	"github.com/idlewheel/idlewheel/reap"
)

// slack is the lateness that a verdict may have if the process was never away: two ticks, the steps
// of the kernel, and the time to look at all connections.
func (w *simWorld) slack() time.Duration {
	return 2*w.cfg.Tick + 2*(w.jiffy+time.Millisecond) + 2*time.Millisecond + time.Duration(len(w.all))*10*time.Microsecond
}

// least is the shortest time that is certainly an outage.
func (w *simWorld) least() time.Duration {
	shortest := w.longest
	for _, s := range configtable.Net.Deadlines(&w.cfg) {
		if s.Value > 0 {
			shortest = min(shortest, s.Value)
		}
	}
	tenth := min(max(shortest/10, 20*time.Millisecond), 200*time.Millisecond)
	return max(2*w.cfg.Tick, tenth) + w.cfg.Tick
}

// grace returns the bound of the grace after an outage, negative if there is none.
func (w *simWorld) grace() time.Duration {
	if w.cfg.OutageGrace == 0 {
		return 2 * time.Minute
	}
	return w.cfg.OutageGrace
}

// outagesSince bounds the time by which outages put a deadline off that counts from an instant.
func (w *simWorld) outagesSince(since, limit time.Duration) (sum time.Duration) {
	for _, o := range w.mayBeOut() {
		if o.to+3*o.length()+limit >= since-w.slack() { // its grace may last longer
			sum += 2*(o.length()+2*w.cfg.Tick) + max(min(o.length(), w.grace()), 0)
		}
	}
	for _, o := range w.holds {
		if o.to+limit >= since-w.slack() {
			return sum + 2*limit + limit/8
		}
	}
	return sum
}

// check reports a violation if an end or an idle event is overdue.
func (l *simLife) check() {
	w := l.w
	if !l.isOpen() || w.failure != nil {
		return
	}
	if l.reason != nil {
		l.checkClosed()
		return
	}
	if w.cfg.ObserveOnly && w.drain.at == 0 {
		return
	}
	if l.mustEnd && !w.inRound {
		w.violate(l, "a connection ends when OnIdle returns Close", "it does not")
	}
	if since := l.kicked; since != 0 && w.now > since+w.slack() && w.now > since+w.slack()+w.outagesSince(since, 0) {
		w.violate(l, "OnReap is called after Kick", "it is not")
	}
	for k := verdict.First; k <= verdict.LastDue; k++ {
		since, limit := l.counts(k)
		if limit == 0 {
			continue
		}
		if verdict.IsIdle(k) { // the idle event counted, though ObserveOnly spared the connection
			since = max(since, w.observedTo)
		}
		changed := w.updatedAt
		if k == reap.MaxAge { // the Goodbye may come after the change
			changed += w.cfg.MaxAgeGrace + w.slack()
		}
		allowed := max(since+limit, changed) + w.slack()
		if w.now <= allowed {
			continue
		}
		if allowed += w.outagesSince(since, limit); w.now > allowed {
			w.violate(l, fmt.Sprintf("%v is noticed by %v", k, allowed),
				fmt.Sprintf("not noticed at %v (since %v, limit %v; outages %v, holds %v)", w.now, since, limit, w.mayBeOut(), w.holds))
			return
		}
	}
}

// checkClosed checks that the Listener closes an ended connection after CloseGrace.
func (l *simLife) checkClosed() {
	w := l.w
	allowed := l.endedAt + w.cfg.CloseGrace + w.slack()
	if w.isReset(l.reason.Reason) {
		allowed = l.endedAt + w.slack()
	}
	if w.now > allowed && w.now > allowed+w.outagesSince(l.endedAt, 0) {
		w.violate(l, fmt.Sprintf("an ended connection is closed by %v", allowed), fmt.Sprintf("open at %v", w.now))
	}
}

// counts returns the latest instant from which a limit counts, and the limit with its delays. The
// limit is 0 if it is off or does not apply.
func (l *simLife) counts(k Reason) (since, limit time.Duration) {
	t, cfg, w := &l.now, &l.w.cfg, l.w
	rest := w.updatedAt // windows and counters may begin again
	switch k {
	case reap.ReadIdle, reap.WriteIdle, reap.AllIdle:
		since, limit = l.countsIdle(k)
		return since, limit + time.Duration(cfg.Jitter*float64(limit))
	case reap.NoFirstByte:
		if t.received == 0 {
			return l.openedAt, cfg.FirstByteTimeout
		}
	case reap.NoHandshake:
		if !t.ready {
			limit = cfg.HandshakeTimeout
			if t.unread || t.handled > l.openedAt || t.arrival > l.openedAt { // bytes waited unread
				limit *= 2
			}
			return l.openedAt, limit
		}
	case reap.WriteStall: // it is checked once per limit, and four times while output waits
		if t.waits != 0 {
			since = max(t.waits, t.took, t.newSent, rest)
			if w.unix {
				since = max(since, t.heard())
			}
			return since, cfg.WriteStallTimeout*9/4 + delayOf(cfg.WriteStallTimeout, 2*cfg.Tick)
		}
	case reap.BelowMinRate:
		if t.message != 0 {
			since = max(t.message+cfg.MinRate.Grace, t.heard(), l.openedAt+cfg.MinRate.Grace, rest)
			return since, 2*cfg.MinRate.Window + delayOf(cfg.MinRate.Window, 6*cfg.Tick)
		}
	case reap.HeartbeatTimeout:
		if h := &cfg.Heartbeat; cfg.MaxAge == 0 && h.Interval > 0 && !w.decides {
			jitter := time.Duration(max(h.Jitter, 0) * float64(h.Interval))
			n := time.Duration(h.MaxMissed)
			return max(t.heard(), t.tookSome, rest), h.Interval + jitter + n*(h.Retry+w.slack())
		}
	case reap.MaxAge:
		if cfg.MaxAge > 0 {
			return l.openedAt, cfg.MaxAge*11/10 + cfg.MaxAgeGrace + w.slack()
		}
	case reap.Drained:
		if w.drain.done != 0 {
			return max(w.drain.done, l.openedAt), w.drain.deadline
		}
	}
	return 0, 0
}

func (l *simLife) countsIdle(k Reason) (since, limit time.Duration) {
	t, cfg := &l.now, &l.w.cfg
	switch {
	case t.holds > 0:
		return 0, 0
	case k == reap.ReadIdle:
		since, limit = t.heard(), cfg.ReadTimeout
	case k == reap.AllIdle:
		since, limit = max(t.heard(), t.anySent), cfg.AllTimeout
	case l.w.decides:
		since, limit = max(t.anySent, t.anew), cfg.WriteTimeout
	}
	return max(since, t.events[k-reap.ReadIdle]), limit
}

// delayOf returns a delay of a limit, or 0 if the limit is off.
func delayOf(limit, delay time.Duration) time.Duration {
	if limit == 0 {
		return 0
	}
	return delay
}

// foundWithin bounds the time in which a connection is found closed.
func (w *simWorld) foundWithin(since time.Duration) time.Duration {
	look := max(1<<11*w.cfg.Tick, 2*w.longest)
	return look + w.slack() + w.outagesSince(since, 0)
}

// checkCounts checks that the counters of the Listener add up.
func (w *simWorld) checkCounts() {
	s := w.ln.Stats()
	want := func(what string, got, want uint64) {
		if got != want {
			w.violate(nil, what+" is exact", fmt.Sprintf("%s is %d, want %d", what, got, want))
		}
	}
	open := uint64(0)
	for _, l := range w.all {
		if l.isOpen() {
			open++
		}
	}
	want("Opened", s.Opened, uint64(w.lives))
	want("Opened - Closed", s.Opened-s.Closed, uint64(s.Connections))
	want("Refused", s.Refused, uint64(w.refused))
	for k := verdict.First; k <= verdict.Last; k++ {
		if w.ends && !w.judging || s.Reaped[k] < w.reaps[k] { // OnReap may still be called
			want("Reaped "+k.Error(), s.Reaped[k], w.reaps[k])
		}
	}
	if kept := uint64(len(w.closed)); uint64(s.Connections) < open || uint64(s.Connections) > open+kept {
		w.violate(nil, "Connections counts the open ones, and closed ones that were not found",
			fmt.Sprintf("%d of %d and %d", s.Connections, open, kept))
	}
	if s.ClosedByHandler > s.Closed {
		w.violate(nil, "ClosedByHandler is a part of Closed", fmt.Sprintf("%d of %d", s.ClosedByHandler, s.Closed))
	}
}
