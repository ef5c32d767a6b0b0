package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// Reap checks that the contract allows to close a connection for this reason.
func (l *Life) Reap(e *reap.Error) {
	l.Check()
	w, t := l.w, &l.asked
	if e.Reason == reap.Shed && l.chosenAt != 0 {
		l.asked, l.Judged = l.chosen, l.chosenAt
	}
	t.set = cmp.Or(t.set, w.Set) // it may be kicked before any question
	w.N[e.Reason.Error()]++
	l.Ended = e
	why := l.early(e)
	switch {
	case e.Reason == reap.Kicked:
	case t.exempt:
		why = "an exempt connection is not closed"
	case t.ended && w.Traits.Loops:
		why = "a connection that the peer has ended is left to the server"
	case t.set.ObserveOnly && l.closing == 0 && e.Reason < reap.Drained:
		why = "ObserveOnly closes no connection"
	}
	if why != "" {
		w.Violate(l, why, "closed at %v (judged %v): %v", w.Now, l.Judged, e)
		return
	}
	if e.Limit > 0 { // the hard limit has no deadline
		l.checkReason(e.Reason)
	}
	l.closing = 0
}

// early returns the promise that was broken if a connection was closed too early, otherwise "".
func (l *Life) early(e *reap.Error) string {
	k, t := e.Reason, &l.asked
	switch {
	case k == reap.WriteIdle && l.closing != k:
		return "write idle closes nothing by itself"
	case verdict.IsIdle(k):
		return l.earlyIdle(k)
	case k > reap.OverLimit && k != reap.HalfClosed, k == reap.OverLimit && e.Limit == 0:
		return l.earlyOther(e)
	}
	r := l.rule(k, t)
	if r.limit == 0 {
		return fmt.Sprintf("%v: the limit is off, or does not apply", k)
	}
	if k == reap.WriteStall && l.w.Family != TCP && t.output == l.prior.output {
		r.from = l.resumedAt // the server sees no reads of the peer that it has made up for
	}
	if r.stage != 0 { // output is checked at intervals
		r.from = max(r.from, l.Judged-e.Lasted)
	}
	due := l.earliest(r.from, r.limit, 0)
	if r.loop {
		due = l.earliestWithLoop(r.from, r.limit)
	}
	mayComplete := k == reap.NoHandshake && t.unread
	return l.notBefore(k, due+When(mayComplete, r.limit))
}

// notBefore returns the promise that was broken if a verdict came before an instant.
func (l *Life) notBefore(k reap.Reason, due time.Duration) string {
	if l.Judged >= due {
		return ""
	}
	return fmt.Sprintf("%v: not before %v (outages %v)", k, due, l.w.wasOut(l, l.askedFrom))
}

// earlyOther is early for the reasons with rules of their own.
func (l *Life) earlyOther(e *reap.Error) string {
	k, t := e.Reason, &l.asked
	switch k {
	case reap.BelowMinRate:
		return l.earlyMinRate(e)
	case reap.HeartbeatTimeout:
		return l.earlyHeartbeat()
	case reap.Shed:
		return l.earlyShed()
	case reap.MaxAge:
		due := l.OpenedFrom + t.set.MaxAge*9/10 + t.set.MaxAgeGrace
		return When(l.w.Now < due || t.set.MaxAge == 0, fmt.Sprintf("max age: not before %v", due))
	case reap.Drained:
		isBusy, d := t.holds+t.outbound > 0, &l.w.drain // its zero is no drain
		return l.notBefore(k, cmp.Or(d.at, never)+When(isBusy, d.deadline))
	case reap.Kicked:
		return When(l.KickedAt == 0, "kicked: Kick was not called")
	}
	if e.TotalBytes > 0 { // reap.OverLimit, of Total or Hard
		return l.earlyTotal(e)
	}
	return l.earlyHard(t.set.OutputLimit.Hard)
}

// earlyHard is early for OutputLimit.Hard.
func (l *Life) earlyHard(limit int) string {
	t, taken := &l.asked, 0
	switch {
	case t.outbound <= limit:
		return fmt.Sprintf("over limit: %d bytes wait, limit %d", t.outbound, limit)
	case t.large == 0 || t.outbound > t.least+limit:
		return ""
	}
	for _, n := range l.takes {
		if n.at > l.Judged-verdict.LargeFor && n.at < l.Judged {
			taken += n.n
		}
	}
	if taken >= min(limit, verdict.LargePart) && l.w.Family == TCP {
		return fmt.Sprintf("over limit: the peer has taken %d bytes of a large answer in %v, limit %d", taken, verdict.LargeFor, limit)
	}
	return l.notBefore(reap.OverLimit, l.earliestWithLoop(t.large, verdict.LargeFor))
}

// earliestWithLoop is earliest for a limit that time in slow handlers extends, at most twofold.
func (l *Life) earliestWithLoop(since, limit time.Duration) time.Duration {
	due, blocked, tick := since+limit, time.Duration(0), l.w.Set.Tick
	counted := since + l.w.rounding()
	for _, o := range l.Loop.stalls {
		_, stops := l.w.Away.Within(o.From-tick, o.To+tick)
		isCertain := o.To <= l.askedFrom && stops == 0
		if part := o.To - max(o.From, counted); isCertain && part > 0 && o.From < due+blocked {
			blocked += part
		}
	}
	return l.earliest(since, limit, min(blocked, limit))
}

// rounding is how much later than the event a server may begin to count.
func (w *World) rounding() time.Duration { return 2*w.Set.Tick + 2*(w.Jiffy+time.Millisecond) }

// earliest returns the deadline of a limit that is extended by a time, after all certain outages.
func (l *Life) earliest(since, limit, more time.Duration) time.Duration {
	due, chance := since+limit+more, time.Duration(0)
	bound, longest := since+24*limit, time.Duration(0) // without the longest outage, and that one
	lost := never                                      // the first segment since the last chance
	since += l.w.rounding()
	for _, o := range l.w.wasOut(l, l.askedFrom) {
		if o.From >= min(max(due, chance), bound+longest) {
			break
		}
		due += max(o.To-max(o.From, since), 0)
		if l.w.Grace() >= 0 && l.asked.heard() < o.From {
			longest = max(longest, min(o.length(), l.w.Grace()))
			if o.From > chance-3*l.w.Set.Tick {
				lost = never
			}
			lost = min(lost, o.From)
			chance = max(chance, o.To+min(o.To-lost, l.w.Grace()))
		}
	}
	return min(max(due, chance), bound+longest)
}

// earlyIdle is early for an idle event.
func (l *Life) earlyIdle(k reap.Reason) string {
	t := &l.asked
	r := l.rule(k, t)
	due := l.earliest(r.from, r.limit, 0)
	switch {
	case k == reap.WriteIdle: // outages do not matter
		due = r.from + r.limit
	case k == reap.AllIdle && l.w.Family == TCP: // a retransmission may count
		due = min(due, l.earliest(max(r.from, t.anySent), r.limit, 0))
	}
	switch {
	case r.limit == 0:
		return fmt.Sprintf("%v: the limit is off, or the connection is held", k)
	case t.ended && l.w.Traits.Loops:
		return fmt.Sprintf("%v: the peer had ended the connection", k)
	case l.LosesInput():
		return ""
	case t.unread && k != reap.WriteIdle:
		return fmt.Sprintf("%v: bytes of the peer wait", k)
	}
	return l.notBefore(k, due)
}

func (l *Life) earlyMinRate(e *reap.Error) string {
	t, rate := &l.asked, &l.asked.set.MinRate
	switch {
	case t.message == 0 || rate.BytesPerSecond == 0:
		return "below min rate: no message is open"
	case t.unread:
		return "below min rate: bytes wait unread"
	}
	n, least := 0, int(float64(rate.BytesPerSecond)*rate.Window.Seconds()+0.999999)
	for _, b := range l.bytes {
		if b.at > l.Judged-rate.Window && b.at < l.Judged {
			n += b.n
		}
	}
	if n >= least {
		return fmt.Sprintf("below min rate: %d bytes came in the window, %d are enough", n, least)
	}
	// The server chooses the beginning of the window.
	since := max(t.message+rate.Grace, l.Judged-e.Lasted)
	return l.notBefore(e.Reason, l.earliestWithLoop(since, rate.Window))
}

func (l *Life) earlyHeartbeat() string {
	t, h := &l.asked, &l.asked.set.Heartbeat
	if t.noPings {
		return "heartbeat timeout: net/http serves the connection"
	}
	if t.pings < h.MaxMissed && !l.LosesInput() {
		return fmt.Sprintf("heartbeat timeout: %d pings were sent since the peer was last heard, limit %d", t.pings, h.MaxMissed)
	}
	// A short stop, which is no outage, may delay the ping.
	late := When(!l.w.Traits.Loops && l.w.Kind != Calm, l.w.least(l.w.Set))
	due := l.earliest(t.lastPing-late, h.Retry, 0)
	if !l.LosesInput() {
		due = max(due, max(t.arrival, l.OpenedFrom)+h.Interval+time.Duration(h.MaxMissed)*h.Retry)
	}
	return l.notBefore(reap.HeartbeatTimeout, due)
}

func (l *Life) earlyShed() string {
	t, s, w := &l.asked, l.asked.set, l.w
	most, open := s.MaxConnections, t.open
	if w.Traits.Loops { // they keep some room free, and each may have one connection in OnOpen
		most, open = most-max(most/16, 1), max(open, l.Loop.openThen)+len(w.Loops)
	}
	silent := l.Judged - max(t.arrival, t.anewFrom)
	if l.w.Family == TCP && !t.resent {
		silent = min(silent, l.Judged-t.newSent)
	}
	switch {
	case t.ended: // a reset of the peer discards what it has sent
		return ""
	case s.MaxConnections == 0:
		return "shed: there is no limit"
	case t.holds > 0:
		return "shed: it was held"
	case silent < s.ShedProtect:
		return fmt.Sprintf("shed: only after a silence of %v, not %v", s.ShedProtect, silent)
	case open < most:
		return fmt.Sprintf("shed: there is room, %d connections are open of %d", open, most)
	}
	return ""
}

// Idle checks that an idle event is due, and notes the answer of OnIdle.
func (l *Life) Idle(ev reap.Event, closes bool) {
	l.Check()
	w, k := l.w, ev.Reason
	w.Trace(l, "OnIdle", k, ev.First, ev.Idle, ev.Late, closes)
	if l.Ended != nil {
		w.Violate(l, "OnIdle is not called after the end", "%v", k)
	}
	why := l.earlyIdle(k)
	if why == "" && !l.LosesInput() {
		why = l.wrongEvent(ev)
	}
	if why != "" {
		w.Violate(l, why, "OnIdle is called at %v, judged at %v: %+v", w.Now, l.Judged, ev)
	}
	l.now.events[k-reap.ReadIdle], l.now.delivered[k-reap.ReadIdle] = l.Judged, w.Now
	w.N["idle events"]++
	if closes {
		l.closing = k
	}
}

// wrongEvent returns the promise that the fields of an event break.
func (l *Life) wrongEvent(ev reap.Event) string {
	w, t, last := l.w, &l.asked, l.asked.events[ev.Reason-reap.ReadIdle]
	earliest, latest := l.activity(t, ev.Reason)
	slack := w.Slack()
	// The stamps are inexact while the driver is away, and until it runs again.
	isOld := func(o Interval) bool { return o.To <= earliest-w.Set.Tick }
	vague, _ := slices.DeleteFunc(w.Away.merged(w.Set.Tick, 0), isOld).Within(0, w.Now)
	vague += w.Set.Tick + 22*time.Millisecond
	if earliest <= l.OpenedAt {
		earliest = l.acceptedAt
	}
	next := last + l.timeouts(t)[ev.Reason-reap.ReadIdle] // unless the timeout has changed
	switch {
	case ev.First && last != 0 && latest < last-slack:
		return fmt.Sprintf("the first event comes after activity, which was at %v, and an event at %v", latest, last)
	case !ev.First && (last == 0 || earliest > t.delivered[ev.Reason-reap.ReadIdle]+slack):
		return fmt.Sprintf("an event after activity is the first: activity at %v, last event %v", earliest, last)
	case last != 0 && last > t.anew && l.Judged < next && l.ownAt == 0 && w.changedAt == 0:
		return fmt.Sprintf("one event comes in each timeout, the last was at %v", last)
	// The clock is read after the question.
	case ev.Idle < l.Judged-latest-slack-vague || ev.Idle > w.Now-earliest+slack+vague:
		return fmt.Sprintf("Idle is %v to %v", l.Judged-latest, w.Now-earliest)
	}
	return ""
}

// activity returns the bounds of the last activity that ends an idle state.
func (l *Life) activity(t *Truth, k reap.Reason) (earliest, latest time.Duration) {
	switch {
	case k == reap.WriteIdle:
		return max(t.newSent, t.anewFrom), max(t.anySent, t.anew)
	case k == reap.ReadIdle || l.w.Family != TCP:
		return max(t.arrival, t.anewFrom), t.heard()
	}
	return max(t.arrival, t.newSent, t.anewFrom), max(t.heard(), t.anySent)
}

// mayStay reports whether a connection with an activity may stay beyond an idle timeout. Reads are
// not recorded far back.
func (l *Life) mayStay(k reap.Reason, active time.Duration) bool {
	return l.Keeps || k == reap.WriteIdle || l.w.Now-active > 2048*l.w.Set.Tick
}

// checkReason checks that no other limit was reached clearly before the limit of the reason.
func (l *Life) checkReason(k reap.Reason) {
	if k > verdict.LastDue || k == reap.WriteIdle || k == reap.BelowMinRate || l.w.Failed() ||
		verdict.IsIdle(k) && l.LosesInput() {
		return
	}
	defer func(now Truth) { l.now = now }(l.now)
	l.now = l.asked // as of the verdict
	mine := l.rule(k, &l.now)
	for other := verdict.First; other <= verdict.LastDue; other++ {
		r := l.rule(other, &l.now)
		if other == k || r.limit == 0 || r.vague || verdict.IsIdle(other) && l.mayStay(other, r.to) {
			continue
		}
		away := When(r.stage != 0, l.absence(r.stage)) // the server may have been away then
		if due := l.until(other, r) + l.w.Slack() + away; due < mine.from+mine.limit {
			l.w.Violate(l, fmt.Sprintf("the reason is the first limit, and %v was reached at %v", other, due),
				"the reason is %v, reached at %v", k, mine.from+mine.limit)
		}
	}
}
