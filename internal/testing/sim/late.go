package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// A rule is what the contract says of one limit, by what is known of a connection.
type rule struct {
	limit    time.Duration // 0 if the limit is off, or does not apply
	from, to time.Duration // it counts from an instant between these
	vague    bool          // the oracle does not know when the verdict is late
	loop     bool          // the limit needs the loop
	stage    time.Duration // the server must have checked the connection first at this instant
	polled   time.Duration // a check may find so much later that the limit is reached
}

// rule returns the rule of a limit by what is known.
func (l *Life) rule(k reap.Reason, t *Truth) rule {
	s, r := l.set(t), rule{from: l.OpenedFrom, to: l.OpenedAt}
	switch k {
	case reap.ReadIdle, reap.WriteIdle, reap.AllIdle:
		return l.idleRule(k, t)
	case reap.NoFirstByte:
		r.limit, r.vague = When(t.received == 0 || l.LosesInput(), s.FirstByteTimeout), t.received > 0
	case reap.NoHandshake:
		r.limit, r.loop = When(!t.ready, s.HandshakeTimeout), true
	case reap.WriteStall:
		r = l.stallRule(t, s)
	case reap.OverLimit:
		r = rule{limit: When(t.soft != 0, s.OutputLimit.SoftFor), from: t.softFrom, loop: true}
		r.to = max(t.soft, l.resumedAt, l.w.changedAt)
		r.polled = l.Loop.noticing(r.limit, t.soft) + 3*s.Tick
	case reap.BelowMinRate:
		r = l.rateRule(t, s)
	case reap.HeartbeatTimeout:
		h := &s.Heartbeat
		r.limit = When(h.Interval > 0, When(!t.noPings, h.Interval+time.Duration(h.MaxMissed)*h.Retry))
		r.from, r.to = t.lastPing+h.Retry-r.limit, max(t.heard(), t.tookSome, l.w.changedAt)
		r.vague = s.MaxAge > 0 || l.w.Decides // it may be in its grace, or OnIdle may write to it
	case reap.HalfClosed:
		r = rule{limit: When(t.finished != 0, s.HalfClosedTimeout), from: t.finished, vague: l.Sock.Rst}
		r.to, r.polled = max(t.finished, l.OpenedAt, l.w.changedAt), r.limit/4+3*s.Tick
	case reap.MaxAge:
		r.limit, r.from, r.stage = s.MaxAge, l.OpenedFrom-s.MaxAge/10, l.OpenedAt+s.MaxAge*9/10
	case reap.Drained:
		d := &l.w.drain
		r = rule{limit: When(d.done != 0, d.deadline), from: d.at - d.deadline, to: max(d.done, l.OpenedAt)}
	}
	if k >= reap.WriteStall && k != reap.MaxAge { // the first check may be late
		r.stage = r.to
	}
	return r
}

// When returns a value that applies, otherwise the zero value.
func When[T any](applies bool, value T) (zero T) {
	if applies {
		return value
	}
	return zero
}

func (l *Life) stallRule(t *Truth, s *Settings) rule {
	r := rule{limit: When(t.waits != 0 || t.outbound > 0, s.WriteStallTimeout), loop: true}
	r.vague = t.waits == 0 || l.w.Family == BSD
	// For output in the kernel there is one question in each timeout, at the next check.
	r.polled = r.limit + l.Loop.noticing(r.limit, t.waits) + 3*s.Tick
	r.from = max(t.waits, t.took, l.resumedAt)
	r.to = max(r.from, t.newSent, l.w.changedAt)
	if l.w.Family != TCP {
		r.to = max(r.to, t.heard(), t.changed)
	}
	return r
}

func (l *Life) rateRule(t *Truth, s *Settings) rule {
	// There may be one window with enough bytes, and one without.
	r := rule{limit: When(t.message != 0, 2*s.MinRate.Window), loop: true, polled: 6 * s.Tick}
	r.from = t.message + s.MinRate.Grace
	r.to = max(r.from, t.heard(), l.OpenedAt+s.MinRate.Grace, l.w.changedAt)
	_, stops := l.w.Away.Within(r.to-l.w.Longest, l.w.Now)
	waits := l.afterCounts(r.to, 0) > r.to
	r.vague = l.w.Family != TCP || r.to > l.w.Now || stops > 0 || waits // windows may be put off
	return r
}

func (l *Life) idleRule(k reap.Reason, t *Truth) rule {
	if t.holds > 0 {
		return rule{}
	}
	w, r := l.w, rule{limit: l.timeouts(t)[k-reap.ReadIdle]}
	r.from, r.to = l.activity(t, k)
	r.vague = k == reap.WriteIdle && (w.Family != TCP || !w.Decides)
	if k != reap.WriteIdle {
		r.from = max(r.from, t.returned)
	}
	if k != reap.ReadIdle {
		r.to = max(r.to, w.Away.end(t.anySent))
	}
	r.to = max(r.to, t.delivered[k-reap.ReadIdle], l.ownAt, w.observedTo)
	return r
}

// Check reports a violation if a close or an idle event is overdue.
func (l *Life) Check() {
	w := l.w
	if !l.IsOpen || l.OpenedAt == 0 || w.Failed() {
		return
	}
	l.Conn.CheckOwn()
	if l.closing != 0 && !l.Loop.Running && !w.InRound && !w.observes {
		w.Violate(l, "a connection is closed when OnIdle returns Close", "it is not")
	}
	if l.Ended == nil && !l.now.exempt && !(l.now.ended && w.Traits.Loops) && !w.Set.ObserveOnly {
		l.checkLimits()
	}
}

func (l *Life) checkLimits() {
	w, slack := l.w, l.w.Slack()
	for _, k := range w.limited {
		r := l.rule(k, &l.now)
		if r.limit == 0 || r.vague || w.Now <= r.to+r.limit+slack {
			continue
		}
		due := l.until(k, r)
		if allowed := due + slack + l.absence(cmp.Or(r.stage, due)); w.Now > allowed {
			w.Violate(l, fmt.Sprintf("%v is noticed by %v (deadline %v)", k, allowed, due),
				"not noticed at %v (since %v, limit %v; outages %v)", w.Now, r.to, r.limit, w.MayBeOut())
		}
	}
}

// CheckDue reports a violation if something that was due at an instant has not happened.
func (l *Life) CheckDue(what string, due time.Duration) {
	if late := l.w.Now - due - l.w.Slack(); late > 0 && late > l.absence(due) {
		l.w.Violate(l, fmt.Sprintf("%s in time (due at %v)", what, due), "it is %v too late", late-l.absence(due))
	}
}

// absence returns how long the server could not close the connection since its deadline.
func (l *Life) absence(due time.Duration) time.Duration {
	w := l.w
	from := due - w.Set.Tick
	sum, n := w.away().Within(from, w.Now)
	loops, m := l.Loop.Away.Within(from, w.Now)
	call := When(w.slow != 0, max(w.Now-max(w.slow, from), 0))
	iteration := When(l.Loop.Running, max(w.Now-max(l.Loop.Began, from), 0))
	return sum + call + loops + iteration + time.Duration(n+m)*w.Set.Tick
}

// until returns the latest deadline of a limit that is on.
func (l *Life) until(k reap.Reason, r rule) (due time.Duration) {
	t, s, w := &l.now, l.set(&l.now), l.w
	jitter := time.Duration(s.Jitter * float64(r.limit))
	// A verdict that waited when the settings changed is made at the next look.
	resumed := max(l.resumedAt, When(w.changedAt > 0, w.changedAt+r.limit/16))
	switch k {
	case reap.ReadIdle, reap.AllIdle:
		due = l.untilIdle(k, r.to, r.limit+jitter)
	case reap.WriteIdle: // a stop during a question leaves open when in it the bytes were sent
		due = max(r.to, w.MayBeOut().end(t.anySent)) + r.limit + jitter
	case reap.NoFirstByte:
		due = l.latest(r.to, r.limit)
	case reap.HeartbeatTimeout:
		jitter := time.Duration(max(s.Heartbeat.Jitter, 0) * float64(s.Heartbeat.Interval))
		late := time.Duration(s.Heartbeat.MaxMissed) * w.Slack()
		due = max(l.latest(r.to, r.limit+jitter+late), l.latest(max(t.lastPing, r.to), r.limit))
	case reap.Drained:
		due = r.to + r.limit
	case reap.MaxAge:
		grace := s.MaxAgeGrace + w.Slack()
		due = r.to + r.limit + r.limit/10 + grace
		resumed += When(resumed != 0, grace) // the goodbye may come after the change
	default:
		waited := k == reap.NoHandshake && (t.unread || t.handled > r.to) // bytes, unread
		due = l.withLoop(r.to, r.limit, r.polled) + When(waited, r.limit)
	}
	return max(due, resumed)
}

// untilIdle returns the latest deadline of an idle timeout. An outage may count in full from any
// instant that the server may take for the last activity, now or at its last questions.
func (l *Life) untilIdle(k reap.Reason, since, limit time.Duration) time.Duration {
	due := l.latest(since, limit)
	for _, t := range []*Truth{&l.now, &l.asked, &l.prior} {
		earliest, latest := l.activity(t, k)
		noticed := t.delivered[k-reap.ReadIdle]
		heardFrom, heardTo := l.activity(t, reap.ReadIdle) // a question tells the server of sent bytes
		activities := []time.Duration{earliest, latest, heardFrom, heardTo}
		if k == reap.AllIdle {
			activities = append(activities, t.dated, l.w.MayBeOut().end(t.anySent))
		}
		for _, since := range activities {
			due = max(due, l.latest(max(since, noticed), limit))
		}
	}
	return due
}

// latest returns the deadline of a limit after all possible outages.
func (l *Life) latest(since, limit time.Duration) time.Duration {
	w, due, chance := l.w, l.afterCounts(since+limit, limit), time.Duration(0)
	heard := l.now.came
	if l.w.Family != TCP && l.Sock.Rst { // bytes that were discarded before a check end no chance
		heard = l.now.handled
	}
	tick, slack, lost, grace := w.Set.Tick, w.Slack(), never, w.Grace()
	resent := time.Duration(0)                         // the end of chance without the eighth
	bound, longest := since+24*limit, time.Duration(0) // without the longest outage, and that one
	for _, o := range w.MayBeOut() {
		o = Interval{o.From - tick, o.To + tick} // the server may date an outage a tick earlier
		if o.From > max(due, chance)+slack {
			break
		}
		passed := o.From > due+slack
		due += min(max(o.To-since, 0), o.length())
		// The clock may have stood still at the last byte: it counts from the end of that outage.
		bound += max(o.To-max(o.From, since)-When(o.From > since, limit), 0)
		if grace < 0 {
			continue
		}
		longest = max(longest, min(o.length(), grace))
		if o.From > resent+slack {
			lost = never
		}
		passed = passed && lost == never && o.From < chance // only a part of the eighth was left
		lost = min(lost, o.From)
		end := chance + o.length()
		if !passed {
			resent = max(resent, o.To+min(o.To-lost, grace)+250*time.Millisecond)
			end = o.To + min(o.To-lost, grace) + max(limit/8, 250*time.Millisecond)
		}
		if heard > o.To+slack+2*tick { // the byte ends the chance at the next check
			end = min(end, l.now.heard()+limit)
		}
		chance = max(chance, end)
	}
	due = max(due, min(chance, bound+longest+slack))
	if n := len(w.holds); n > 0 && w.holds[n-1].To > since { // verdicts may have been held
		due += 2*limit + limit/8 + tick
	}
	return l.afterCounts(due, limit)
}

// afterCounts returns a deadline of a limit that may wait until it is known how many connections
// were busy together: an eighth of the shortest idle timeout after the last byte of any peer.
func (l *Life) afterCounts(due, limit time.Duration) time.Duration {
	w, tick := l.w, l.w.Set.Tick
	n, _ := slices.BinarySearch(w.heard, due+w.Slack())
	if n == 0 || w.Grace() < 0 {
		return due
	}
	last := w.heard[n-1] + tick
	stopped, _ := w.Away.Within(last-tick, due+w.shortestIdle()/8)
	if until := last + stopped + w.shortestIdle()/8; until > due {
		return until + max(limit/16, tick) + 2*tick
	}
	return due
}

// withLoop is latest for a limit that needs the loop, and is reached up to the given time later.
// Blocked time extends it at most twofold.
func (l *Life) withLoop(since, limit, later time.Duration) time.Duration {
	if !l.w.Traits.Loops {
		return l.latest(since, limit+later)
	}
	due, slack := since+limit+later, l.w.Slack()
	blocked, block := time.Duration(0), time.Duration(0)
	times := l.unheard()
	next := since + limit + later // the last deadline that a block may put off
	joined := len(times) > 16     // the server joins some of them, with the time in between
	for _, o := range times {
		if o.From-l.w.Set.Tick <= due+slack {
			part := min(max(o.To-since, 0), o.length())
			due, blocked = due+part, blocked+part
		}
		// The deadline passed during the block.
		if o.From <= next+slack && (joined || o.To >= since+limit-slack) {
			if l.Loop.Running && o.To >= l.w.Now {
				return never / 2
			}
			length := o.length()
			if joined {
				length = limit
			}
			if joined || later > 0 && block == 0 { // the first check waits for the end of a block
				next = max(next, o.To+limit)
			}
			block = max(block, l.latest(o.To, min(length, limit)))
		}
	}
	if joined {
		blocked = limit
	}
	return max(l.latest(since, limit+later+min(blocked, limit)), block)
}

// unheard returns the times in which the loop may count as blocked, or the server as away.
func (l *Life) unheard() (all Intervals) {
	w, tick := l.w, l.w.Set.Tick
	all = append(all, l.Loop.blocks...)
	if l.Loop.Running {
		all = append(all, Interval{min(l.Loop.Began, l.Loop.seen), w.Now})
	}
	for _, o := range w.away() {
		all = append(all, Interval{o.From - tick, o.To + tick})
	}
	return all.merged(0, 0)
}
