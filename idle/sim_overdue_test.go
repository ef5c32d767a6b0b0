package idle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"

	"github.com/idlewheel/idlewheel/reap"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// simNever is never in the time of the simulation.
const simNever = time.Duration(never)

// slack is the lateness that a verdict may have if the process was never away: two ticks, the steps
// of the kernel, and the time to close all connections.
func (w *simWorld) slack() time.Duration {
	return 2*w.cfg.Tick + 2*(w.jiffy+time.Millisecond) + 4*time.Millisecond + time.Duration(len(w.all))*40*time.Microsecond
}

// least is the shortest time that is certainly an outage.
func (w *simWorld) least() time.Duration {
	shortest := w.longest
	for _, s := range configtable.Idle.Deadlines(&w.cfg) {
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

// check reports a violation if a close or an idle event is overdue.
func (l *simLife) check() {
	if !l.isOpen || l.openedAt == 0 || l.now.ended || l.w.failure != nil {
		return
	}
	l.checkTimers()
	if l.now.exempt || l.w.failure != nil {
		return
	}
	for k := verdict.First; k <= verdict.LastDue; k++ {
		since, limit := l.counts(k)
		if limit == 0 || l.w.now <= since+limit {
			continue
		}
		due := l.until(k)
		allowed := due + l.w.slack()
		if l.w.now <= allowed {
			continue
		}
		if allowed += l.absence(l.firstStage(k, due)); l.w.now > allowed {
			l.w.violate(l, fmt.Sprintf("%v is noticed by %v (deadline %v)", k, allowed, due),
				fmt.Sprintf("not noticed at %v (since %v, limit %v; outages %v)", l.w.now, since, limit, l.w.mayBeOut()))
			return
		}
	}
}

// absence returns how long the server could not close the connection since its deadline.
func (l *simLife) absence(due time.Duration) time.Duration {
	w := l.w
	from := due - w.cfg.Tick
	sum, n := w.driverAway.overlap(from, w.now)
	if w.now > w.roundDue { // the driver is late now
		sum += max(w.now-max(w.roundDue, from), 0)
		n++
	}
	loops, m := l.el.away.overlap(from, w.now)
	if l.el.running {
		loops += max(w.now-max(l.el.began, from), 0)
	}
	return sum + loops + time.Duration(n+m)*w.cfg.Tick
}

// firstStage returns the first of the consecutive deadlines that end with due.
func (l *simLife) firstStage(k Reason, due time.Duration) time.Duration {
	switch k {
	case reap.MaxAge:
		return l.openedAt + l.w.cfg.MaxAge*9/10
	case reap.WriteStall, reap.OverLimit, reap.BelowMinRate, reap.HeartbeatTimeout, reap.Drained: // the first check may be late
		since, _ := l.counts(k)
		return since
	}
	return due
}

// delayed returns how much later a deadline may be because the server was away at an earlier one.
func (l *simLife) delayed(k Reason) time.Duration {
	if first := l.firstStage(k, simNever); first != simNever {
		return l.absence(first)
	}
	return 0
}

// counts returns the latest instant from which a limit counts, and the limit. The limit is 0 if it
// is off or does not apply.
func (l *simLife) counts(k Reason) (since, limit time.Duration) {
	t, cfg := &l.now, &l.w.cfg
	switch k {
	case reap.ReadIdle, reap.WriteIdle, reap.AllIdle:
		return l.countsIdle(k)
	case reap.NoFirstByte:
		if t.received > 0 {
			return 0, 0
		}
		return l.openedAt, cfg.FirstByteTimeout
	case reap.NoHandshake:
		if t.ready {
			return 0, 0
		}
		return l.openedAt, cfg.HandshakeTimeout
	case reap.WriteStall:
		if t.waits == 0 || l.w.family == simBSD {
			return 0, 0
		}
		since = max(t.waits, t.took, t.newSent, l.resumedAt)
		if l.w.family != simTCP {
			since = max(since, t.heard(), t.changed)
		}
		return since, cfg.WriteStallTimeout
	case reap.OverLimit:
		if t.soft == 0 {
			return 0, 0
		}
		return max(t.soft, l.resumedAt), cfg.OutputLimit.SoftFor
	case reap.BelowMinRate:
		if t.message == 0 || l.w.family != simTCP {
			return 0, 0
		}
		since = max(t.message+cfg.MinRate.Grace, t.heard(), l.openedAt+cfg.MinRate.Grace)
		if since > l.w.now || l.w.driverAway.since(since-l.w.longest) > 0 { // windows may be put off
			return 0, 0
		}
		return since, 2 * cfg.MinRate.Window
	case reap.HeartbeatTimeout:
		// The connection may be in its grace, or OnIdle may write to it.
		if cfg.MaxAge > 0 || l.w.decides {
			return 0, 0
		}
		h := &cfg.Heartbeat
		return max(t.heard(), t.tookSome), h.Interval + time.Duration(h.MaxMissed)*h.Retry
	case reap.MaxAge:
		return l.openedAt, cfg.MaxAge
	case reap.Drained:
		if l.w.drain.done == 0 {
			return 0, 0
		}
		return max(l.w.drain.done, l.openedAt), l.w.drain.deadline
	}
	return 0, 0
}

func (l *simLife) countsIdle(k Reason) (since, limit time.Duration) {
	t := &l.now
	if t.holds > 0 {
		return 0, 0
	}
	timeouts := l.timeouts()
	switch k {
	case reap.ReadIdle:
		since, limit = t.heard(), timeouts.Read
	case reap.WriteIdle:
		if l.w.family != simTCP || !l.w.decides {
			return 0, 0
		}
		since, limit = max(l.w.driverAway.end(t.anySent), t.anew), timeouts.Write
	case reap.AllIdle:
		since, limit = max(t.heard(), l.w.driverAway.end(t.anySent)), timeouts.All
	}
	return max(since, t.delivered[k-reap.ReadIdle], l.changedAt), limit
}

// until returns the latest deadline of a limit that is on.
func (l *simLife) until(k Reason) time.Duration {
	due := l.untilAlways(k)
	if l.resumedAt == 0 {
		return due
	}
	resumed := l.resumedAt
	if k == reap.MaxAge {
		resumed += l.w.cfg.MaxAgeGrace + l.w.slack()
	}
	return max(due, resumed)
}

// untilAlways is until for a connection that was never exempt.
func (l *simLife) untilAlways(k Reason) time.Duration {
	t, cfg := &l.now, &l.w.cfg
	since, limit := l.counts(k)
	switch k {
	case reap.ReadIdle, reap.AllIdle:
		return l.untilIdle(k, since, limit+time.Duration(cfg.Jitter*float64(limit)))
	case reap.WriteIdle: // a stop during a question leaves open when in it the bytes were sent
		since = max(since, l.w.mayBeOut().end(t.anySent))
		return since + limit + time.Duration(cfg.Jitter*float64(limit))
	case reap.NoFirstByte:
		return l.latest(since, limit, t.came)
	case reap.NoHandshake:
		due := l.withLoop(since, limit, 0)
		if t.unread || t.handled > since { // bytes waited unread
			due += limit
		}
		return due
	case reap.WriteStall: // for output in the kernel there is one question per timeout, at the next check
		return l.withLoop(since, limit, limit+l.noticing(limit, t.waits)+3*cfg.Tick)
	case reap.OverLimit:
		return l.withLoop(since, limit, l.noticing(limit, t.soft)+3*cfg.Tick)
	case reap.BelowMinRate: // one window with enough bytes and one without
		return l.withLoop(since, limit, 6*cfg.Tick)
	case reap.HeartbeatTimeout:
		jitter := time.Duration(max(cfg.Heartbeat.Jitter, 0) * float64(cfg.Heartbeat.Interval))
		late := time.Duration(cfg.Heartbeat.MaxMissed) * l.w.slack()
		return max(l.latest(since, limit+jitter+late, t.came), l.latest(max(t.lastPing, since), limit, t.came))
	case reap.Drained:
		return since + limit
	case reap.MaxAge:
		return since + limit + limit/10 + cfg.MaxAgeGrace + l.w.slack()
	}
	return simNever
}

// untilIdle returns the latest deadline of an idle timeout. An outage may count in full from any
// instant that the Reaper may take for the last activity, including its knowledge at the last
// question.
func (l *simLife) untilIdle(k Reason, since, limit time.Duration) time.Duration {
	due := l.latest(since, limit, l.now.came)
	for _, t := range []*simTruth{&l.now, &l.asked, &l.prior} {
		earliest, latest := l.activity(t, k)
		noticed := t.delivered[k-reap.ReadIdle]
		heardFrom, heardTo := l.activity(t, reap.ReadIdle) // a question tells the Reaper of sent bytes
		activities := []time.Duration{earliest, latest, heardFrom, heardTo}
		if k == reap.AllIdle {
			activities = append(activities, t.dated, l.w.mayBeOut().end(t.anySent))
		}
		for _, since := range activities {
			due = max(due, l.latest(max(since, noticed), limit, l.now.came))
		}
	}
	return due
}

// latest returns the deadline of a limit after all possible outages.
func (l *simLife) latest(since, limit, heard time.Duration) time.Duration {
	w, due, ends := l.w, since+limit, time.Duration(0) // the deadline, and the end of the grace
	tick, slack, grace := w.cfg.Tick, w.slack(), w.grace()
	for _, o := range w.mayBeOut() {
		if o.from-tick > max(due, ends)+slack { // the Reaper may date an outage a tick earlier
			break
		}
		length := o.length() + 2*tick
		if o.from-tick <= ends+slack {
			ends += length
		}
		due += min(max(o.to+tick-since, 0), length)
		end := o.to + tick + min(length, grace)
		if heard > o.to+slack+3*tick { // the byte ends the grace at the next check
			end = min(end, l.now.heard()+limit)
		}
		if grace >= 0 {
			ends = max(ends, end)
		}
	}
	due = max(due, ends)
	if w.mayHold(since) {
		due += 2*limit + limit/8 + tick
	}
	return due
}

// withLoop returns the latest deadline of a limit that needs the loop. The limit counts from since,
// and its deadline may be later by the given time. Blocked time extends it by at most the limit.
func (l *simLife) withLoop(since, limit, later time.Duration) time.Duration {
	due, slack := since+limit+later, l.w.slack()
	blocked, block := time.Duration(0), time.Duration(0)
	times := l.unheard()
	next := since + limit + later         // the last deadline that a block may put off
	joined := len(times) > simMostOutages // the Reaper joins some of them, with the time in between
	for _, o := range times {
		if o.from-l.w.cfg.Tick <= due+slack {
			part := min(max(o.to-since, 0), o.length())
			due, blocked = due+part, blocked+part
		}
		// The deadline passed during the block.
		if o.from <= next+slack && (joined || o.to >= since+limit-slack) {
			if l.el.running && o.to >= l.w.now {
				return simNever / 2
			}
			length := o.length()
			if joined {
				length = limit
			}
			if joined || later > 0 && block == 0 { // the first check waits for the end of a block
				next = max(next, o.to+limit)
			}
			block = max(block, l.latest(o.to, min(length, limit), l.now.came))
		}
	}
	if joined {
		blocked = limit
	}
	return max(l.latest(since, limit+later+min(blocked, limit), l.now.came), block)
}

// simMostOutages is how many outages a loop tells apart.
const simMostOutages = 16

// unheard returns the times in which the loop of the connection may be taken for blocked or the
// server for away, with two extra ticks for each.
func (l *simLife) unheard() (all simIntervals) {
	w, tick := l.w, l.w.cfg.Tick
	all = append(all, l.el.blocks...)
	if l.el.running {
		all = append(all, simInterval{min(l.el.began, l.el.seen), w.now})
	}
	for _, o := range w.driverAway {
		all = append(all, simInterval{o.from - tick, o.to + tick})
	}
	if w.driver != nil && w.now > w.roundDue {
		all = append(all, simInterval{w.roundDue - tick, w.now + tick})
	}
	slices.SortStableFunc(all, func(a, b simInterval) int { return cmp.Compare(a.from, b.from) })
	list := all[:0]
	for _, o := range all {
		if n := len(list); n > 0 && o.from <= list[n-1].to {
			list[n-1].to = max(list[n-1].to, o.to)
			continue
		}
		list = append(list, o)
	}
	return list
}

// noticing returns the interval between two checks of output against a limit. The output waits
// since the given instant.
func (l *simLife) noticing(limit, since time.Duration) time.Duration {
	if l.el.wasQuiet(since) {
		return limit
	}
	return limit / 4
}

// checkEvery returns the interval at which output is checked on a loop that is not quiet.
func (w *simWorld) checkEvery() time.Duration {
	every := simNever
	if w.cfg.OutputLimit.Hard > 0 || w.cfg.OutputLimit.Total > 0 {
		every = time.Second
	}
	for _, limit := range []time.Duration{w.cfg.OutputLimit.SoftFor, w.cfg.WriteStallTimeout} {
		if limit > 0 {
			every = min(every, limit/4)
		}
	}
	return max(every, w.cfg.Tick)
}
