package idle

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// A simLife is the knowledge of the oracle about one connection. The oracle judges by the contract
// and by physical events. It does not know how the Reaper judges.
type simLife struct {
	w         *simWorld
	id        int
	el        *simLoop
	sock      *simSock
	now       simTruth
	asked     simTruth      // as of the last question to the kernel
	prior     simTruth      // as of an earlier question
	judged    time.Duration // time of the last question
	askedFrom time.Duration // the Reaper judges as of this time; a stop may delay the question itself

	acceptedAt  time.Duration // the kernel has accepted the connection
	openedAt    time.Duration // Reaper.OnOpen has returned
	openedFrom  time.Duration // the handler's OnOpen has returned
	touchFrom   time.Duration
	eventAt     time.Duration // the verdict of the last idle event
	deliveredAt time.Duration // its call of OnIdle, perhaps after a stop
	isOpen      bool          // OnOpen was called and OnClose was not
	isRefused   bool
	wasClosed   bool
	isKicked    bool
	isExempt    bool
	keeps       bool // OnIdle keeps the connection
	messages    int
	changedAt   time.Duration
	resumedAt   time.Duration // Exempt(false) was called
	bytes       []simBytes    // the latest bytes, for MinRate
}

type simBytes struct {
	at time.Duration
	n  int
}

// slack is the lateness that a verdict may have if the process was never away: two ticks, the steps
// of the kernel, and the time to close all connections.
func (w *simWorld) slack() time.Duration {
	return 2*w.cfg.Tick + 2*(w.jiffy+time.Millisecond) + 4*time.Millisecond + time.Duration(len(w.all))*40*time.Microsecond
}

// least is the shortest time that is certainly an outage.
func (w *simWorld) least() time.Duration { return max(2*w.cfg.Tick, 20*time.Millisecond) + w.cfg.Tick }

// earliest returns the deadline of a limit after all certain outages.
func (l *simLife) earliest(since, limit, heard time.Duration, away simIntervals) time.Duration {
	due, grace := since+limit, l.w.grace()
	since += 2*l.w.cfg.Tick + 2*(l.w.jiffy+time.Millisecond) // the Reaper may round up by so much
	for _, o := range away {
		if o.from >= due {
			break
		}
		due += max(o.to-max(o.from, since), 0)
		if grace >= 0 && heard < o.from {
			due = max(due, o.to+min(o.length(), grace))
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

// grace returns the bound of the grace after an outage, negative if there is none.
func (w *simWorld) grace() time.Duration {
	if w.cfg.OutageGrace == 0 {
		return 2 * time.Minute
	}
	return w.cfg.OutageGrace
}

// check reports a violation if a close or an idle event is overdue.
func (l *simLife) check() {
	if !l.isOpen || l.openedAt == 0 || l.now.exempt || l.now.ended || l.w.failure != nil {
		return
	}
	for k := firstReason; k <= lastDue; k++ {
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
				fmt.Sprintf("it is not at %v (since %v, limit %v; outages %v)", l.w.now, since, limit, l.w.mayBeOut()))
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
	case MaxAge:
		return l.openedAt + l.w.cfg.MaxAge*9/10
	case WriteStall, OverLimit, BelowMinRate, HeartbeatTimeout, Drained: // the first check may be late as well
		since, _ := l.counts(k)
		return since
	}
	return due
}

// delayed returns how much later a deadline may be because the server was away at an earlier one.
func (l *simLife) delayed(k Reason) time.Duration {
	if first := l.firstStage(k, never); first != never {
		return l.absence(first)
	}
	return 0
}

// counts returns the latest instant from which a limit counts, and the limit. The limit is 0 if it
// is off or does not apply.
func (l *simLife) counts(k Reason) (since, limit time.Duration) {
	t, cfg := &l.now, &l.w.cfg
	switch k {
	case ReadIdle, WriteIdle, AllIdle:
		return l.countsIdle(k)
	case NoFirstByte:
		if t.received > 0 {
			return 0, 0
		}
		return l.openedAt, cfg.FirstByteTimeout
	case NoHandshake:
		if t.ready {
			return 0, 0
		}
		return l.openedAt, cfg.HandshakeTimeout
	case WriteStall:
		if t.waits == 0 || l.w.family == simBSD {
			return 0, 0
		}
		since = max(t.waits, t.took, t.newSent, l.resumedAt)
		if l.w.family != simTCP {
			since = max(since, t.heard(), t.changed)
		}
		return since, cfg.WriteStallTimeout
	case OverLimit:
		if t.soft == 0 {
			return 0, 0
		}
		return max(t.soft, l.resumedAt), cfg.OutputLimit.SoftFor
	case BelowMinRate:
		if t.message == 0 || l.w.family != simTCP {
			return 0, 0
		}
		since = max(t.message+cfg.MinRate.Grace, t.heard(), l.openedAt+cfg.MinRate.Grace)
		if since > l.w.now || l.w.driverAway.since(since-l.w.longest) > 0 { // the server may have put off each window
			return 0, 0
		}
		return since, 2 * cfg.MinRate.Window
	case HeartbeatTimeout:
		if cfg.MaxAge > 0 || l.w.decides { // the connection may be in its grace, or OnIdle may write to it
			return 0, 0
		}
		h := &cfg.Heartbeat
		return max(t.heard(), t.tookSome), h.Interval + time.Duration(h.MaxMissed)*h.Retry
	case MaxAge:
		return l.openedAt, cfg.MaxAge
	case Drained:
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
	case ReadIdle:
		since, limit = t.heard(), timeouts.Read
	case WriteIdle:
		if l.w.family != simTCP || !l.w.decides {
			return 0, 0
		}
		since, limit = max(l.w.driverAway.end(t.anySent), t.anew), timeouts.Write
	case AllIdle:
		since, limit = max(t.heard(), l.w.driverAway.end(t.anySent)), timeouts.All
	}
	return max(since, t.delivered[k-ReadIdle], l.changedAt), limit
}

func (l *simLife) timeouts() Timeouts {
	if l.now.own != nil {
		return *l.now.own
	}
	return l.w.cfg.timeouts()
}

// until returns the latest deadline of a limit that is on.
func (l *simLife) until(k Reason) time.Duration {
	due := l.untilAlways(k)
	if l.resumedAt == 0 {
		return due
	}
	resumed := l.resumedAt
	if k == MaxAge {
		resumed += l.w.cfg.MaxAgeGrace + l.w.slack()
	}
	return max(due, resumed)
}

// untilAlways is until for a connection that was never exempt.
func (l *simLife) untilAlways(k Reason) time.Duration {
	t, cfg := &l.now, &l.w.cfg
	since, limit := l.counts(k)
	switch k {
	case ReadIdle, AllIdle:
		return l.untilIdle(k, since, limit+time.Duration(cfg.Jitter*float64(limit)))
	case WriteIdle:
		return since + limit + time.Duration(cfg.Jitter*float64(limit))
	case NoFirstByte:
		return l.latest(since, limit, t.came)
	case NoHandshake:
		due := l.withLoop(since, limit, 0)
		if t.unread || t.handled > since { // bytes waited unread
			due += limit
		}
		return due
	case WriteStall: // for output in the kernel there is one question per timeout, at the next check
		return l.withLoop(since, limit, limit+l.noticing(limit, t.waits)+3*cfg.Tick)
	case OverLimit:
		return l.withLoop(since, limit, l.noticing(limit, t.soft)+3*cfg.Tick)
	case BelowMinRate: // one window with enough bytes and one without
		return l.withLoop(since, limit, 6*cfg.Tick)
	case HeartbeatTimeout:
		jitter := time.Duration(max(cfg.Heartbeat.Jitter, 0) * float64(cfg.Heartbeat.Interval))
		late := time.Duration(cfg.Heartbeat.MaxMissed) * l.w.slack()
		return max(l.latest(since, limit+jitter+late, t.came), l.latest(max(t.lastPing, since), limit, t.came))
	case Drained:
		return since + limit
	case MaxAge:
		return since + limit + limit/10 + cfg.MaxAgeGrace + l.w.slack()
	}
	return never
}

// untilIdle returns the latest deadline of an idle timeout. An outage may count in full from any
// instant that the Reaper may take for the last activity, including its knowledge at the last
// question.
func (l *simLife) untilIdle(k Reason, since, limit time.Duration) time.Duration {
	due := l.latest(since, limit, l.now.came)
	for _, t := range []*simTruth{&l.now, &l.asked, &l.prior} {
		earliest, latest := l.activity(t, k)
		noticed := t.delivered[k-ReadIdle]
		heardFrom, heardTo := l.activity(t, ReadIdle) // a question tells the Reaper of sent bytes
		activities := []time.Duration{earliest, latest, heardFrom, heardTo}
		if k == AllIdle {
			activities = append(activities, t.dated)
		}
		for _, since := range activities {
			due = max(due, l.latest(max(since, noticed), limit, l.now.came))
		}
	}
	return due
}

// withLoop returns the latest deadline of a limit that needs the loop. The limit counts from since,
// and its deadline may be later by the given time. Blocked time extends it by at most the limit.
func (l *simLife) withLoop(since, limit, later time.Duration) time.Duration {
	due, slack := since+limit+later, l.w.slack()
	blocked, block := time.Duration(0), time.Duration(0)
	for _, o := range l.unheard() {
		if o.from-l.w.cfg.Tick <= due+slack {
			part := min(max(o.to-since, 0), o.length())
			due, blocked = due+part, blocked+part
		}
		if o.from <= since+limit+later+slack && o.to >= since+limit-slack { // the deadline passed during the block
			if l.el.running && o.to >= l.w.now {
				return never / 2
			}
			block = max(block, l.latest(o.to, min(o.length(), limit), l.now.came))
		}
	}
	return max(l.latest(since, limit+later+min(blocked, limit), l.now.came), block)
}

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

// reaped checks that the contract allows to close a connection for this reason.
func (l *simLife) reaped(e *ReapError) {
	w, t := l.w, &l.asked
	w.reaps.of[e.Reason]++
	if t.exempt && e.Reason != Kicked {
		w.violate(l, "an exempt connection is not closed", "closed: "+e.Error())
		return
	}
	if t.ended && e.Reason != Kicked {
		w.violate(l, "a connection that the peer has ended is left to gnet", "closed: "+e.Error())
		return
	}
	if why := l.early(e); why != "" {
		w.violate(l, why, fmt.Sprintf("closed at %v (judged %v): %v", w.now, l.judged, e))
		return
	}
	if e.Limit > 0 { // the hard limit has no deadline
		l.checkReason(e.Reason)
	}
}

// early returns the promise that was broken if a connection was closed too early, otherwise "".
func (l *simLife) early(e *ReapError) string {
	w, t, cfg := l.w, &l.asked, &l.w.cfg
	since, limit := l.openedFrom, time.Duration(0)
	heard := max(t.arrival, t.handled, t.anew)
	away := l.w.wasOut(l.askedFrom)
	switch e.Reason {
	case ReadIdle, AllIdle:
		return l.earlyIdle(e.Reason)
	case WriteIdle:
		return "write idle closes nothing by itself"
	case NoFirstByte:
		if limit = cfg.FirstByteTimeout; t.received > 0 || limit == 0 {
			return "no first byte: a byte had arrived"
		}
	case NoHandshake:
		if limit = cfg.HandshakeTimeout; t.ready || limit == 0 {
			return "no handshake: it was ready"
		}
		away = l.loopAway()
	case WriteStall:
		since, limit = max(t.waits, t.took, l.resumedAt), cfg.WriteStallTimeout
		if t.waits == 0 && t.outbound == 0 {
			return "write stall: no output waits"
		}
		if w.family == simBSD && t.outbound == l.prior.outbound { // reads of the peer are invisible
			since = l.resumedAt
		}
		away = l.loopAway()
	case OverLimit:
		if e.Limit == 0 {
			if t.outbound <= cfg.OutputLimit.Hard {
				return fmt.Sprintf("over limit: %d bytes wait, limit %d", t.outbound, cfg.OutputLimit.Hard)
			}
			return ""
		}
		if t.outbound <= cfg.OutputLimit.Soft {
			return "over limit: output is below the soft limit"
		}
		since, limit, away = t.softFrom, cfg.OutputLimit.SoftFor, l.loopAway()
	case BelowMinRate:
		return l.earlySlow(e)
	case HeartbeatTimeout:
		return l.earlyAnswer()
	case MaxAge:
		if due := since + cfg.MaxAge*9/10 + cfg.MaxAgeGrace; l.w.now < due {
			return fmt.Sprintf("max age: not before %v", due)
		}
		return ""
	case Drained:
		return l.earlyDrained()
	case Kicked:
		if !l.isKicked {
			return "kicked: Kick was not called"
		}
		return ""
	case Shed:
		return l.earlyShed()
	}
	if e.Reason == WriteStall || e.Reason == OverLimit {
		since = max(since, l.judged-e.Lasted) // the Reaper checks at intervals
	}
	if due := l.earliest(since, limit, heard, away); l.judged < due {
		return fmt.Sprintf("%v: not before %v (since %v; outages %v)", e.Reason, due, since, away)
	}
	return ""
}

func (l *simLife) earlyIdle(k Reason) string {
	defer func(now simTruth) { l.now = now }(l.now)
	l.now = l.asked
	t, timeouts := &l.asked, l.timeouts()
	if t.holds > 0 {
		return fmt.Sprintf("%v: it was held", k)
	}
	since, limit := max(t.arrival, t.anewFrom), timeouts.Read
	if k == AllIdle {
		if limit = timeouts.All; l.w.family == simTCP {
			since = max(since, t.newSent)
		}
	}
	if limit == 0 {
		return fmt.Sprintf("%v: the limit is off", k)
	}
	heard, away := max(t.arrival, t.handled, t.anew), l.w.wasOut(l.askedFrom)
	due := l.earliest(since, limit, heard, away)
	if k == AllIdle && l.w.family == simTCP { // a retransmission may count, and has fewer outages after it
		due = min(due, l.earliest(max(since, t.anySent), limit, heard, away))
	}
	if l.judged < due {
		return fmt.Sprintf("%v: not before %v (since %v, limit %v)", k, due, since, limit)
	}
	return ""
}

// loopAway returns the times in which the server or the loop of the connection was certainly away.
func (l *simLife) loopAway() simIntervals { return l.w.wasOut(l.askedFrom) }

func (l *simLife) earlySlow(e *ReapError) string {
	t, rate := &l.asked, &l.w.cfg.MinRate
	if t.message == 0 {
		return "below min rate: no message is open"
	}
	since := max(t.message+rate.Grace, l.judged-e.Lasted) // the Reaper chooses the beginning of the window
	due := l.earliest(since, rate.Window, max(t.arrival, t.handled, t.anew), l.w.wasOut(l.askedFrom))
	if l.judged < due {
		return fmt.Sprintf("below min rate: not before %v", due)
	}
	least := int(float64(rate.BytesPerSecond)*rate.Window.Seconds() + 0.999999)
	if n := l.bytesSince(l.judged - rate.Window); n >= least {
		return fmt.Sprintf("below min rate: %d bytes came in the window, %d are enough", n, least)
	}
	return ""
}

func (l *simLife) bytesSince(from time.Duration) (n int) {
	for _, b := range l.bytes {
		if b.at > from && b.at < l.judged {
			n += b.n
		}
	}
	return n
}

func (l *simLife) earlyAnswer() string {
	t, h := &l.asked, &l.w.cfg.Heartbeat
	if t.pings < h.MaxMissed {
		return fmt.Sprintf("no answer: %d pings were sent since the peer was last heard, limit %d", t.pings, h.MaxMissed)
	}
	due := l.earliest(t.lastPing, h.Retry, max(t.arrival, t.handled, t.anew), l.w.wasOut(l.askedFrom))
	if h.IsPong == nil {
		due = max(due, max(t.arrival, l.openedFrom)+h.Interval+time.Duration(h.MaxMissed)*h.Retry)
	}
	if l.judged < due {
		return fmt.Sprintf("no answer: not before %v (last ping %v)", due, t.lastPing)
	}
	return ""
}

func (l *simLife) earlyDrained() string {
	d := &l.w.drain
	switch {
	case d.at == 0:
		return "drained: Drain was not called"
	case (l.asked.holds > 0 || l.asked.outbound > 0) && l.judged < d.at+d.deadline:
		return fmt.Sprintf("drained: a held connection not before %v", d.at+d.deadline)
	}
	return ""
}

func (l *simLife) earlyShed() string {
	t, w := &l.asked, l.w
	silent := l.judged - max(t.arrival, t.anewFrom)
	if l.w.family == simTCP && l.sock.retransmits == 0 {
		silent = min(silent, l.judged-t.newSent)
	}
	switch {
	case w.cfg.MaxConnections == 0:
		return "shed: there is no limit"
	case t.holds > 0:
		return "shed: it was held"
	case silent < w.cfg.ShedProtect:
		return fmt.Sprintf("shed: only after a silence of %v", w.cfg.ShedProtect)
	case max(t.open, l.el.openThen)+len(w.loops) < w.cfg.MaxConnections-max(w.cfg.MaxConnections/16, 1): // each loop may have one connection in OnOpen
		return fmt.Sprintf("shed: there is room, %d connections are open of %d, Connections said %d", t.open, w.cfg.MaxConnections, w.reaper.Connections())
	}
	return ""
}

// checkReason checks that no other limit was reached clearly before the limit of the reason.
func (l *simLife) checkReason(k Reason) {
	if k > lastDue || l.w.failure != nil {
		return
	}
	defer func(now simTruth) { l.now = now }(l.now)
	l.now = l.asked // as of the verdict
	mine, ok := l.soonest(k)
	if !ok {
		return
	}
	for other := firstReason; other <= lastDue; other++ {
		since, limit := l.counts(other)
		if other == k || limit == 0 || other == WriteIdle || other.isIdle() && l.w.keeps {
			continue
		}
		if other.isIdle() && l.w.now-since > 2048*l.w.cfg.Tick {
			continue // reads are not recorded that far back
		}
		if due := l.until(other) + l.w.slack() + l.delayed(other); due < mine {
			l.w.violate(l, fmt.Sprintf("the reason is the first limit, and %v was reached at %v", other, due),
				fmt.Sprintf("the reason is %v, reached at %v", k, mine))
			return
		}
	}
}

// soonest returns the earliest possible deadline of a limit without outages.
func (l *simLife) soonest(k Reason) (due time.Duration, ok bool) {
	t, cfg := &l.now, &l.w.cfg
	switch k {
	case ReadIdle, AllIdle:
		since, _ := l.activity(t, k)
		return since + l.limitOf(k), true
	case NoFirstByte:
		return l.openedFrom + cfg.FirstByteTimeout, true
	case NoHandshake:
		return l.openedFrom + cfg.HandshakeTimeout, true
	case WriteStall:
		return max(t.waits, t.took) + cfg.WriteStallTimeout, true
	case OverLimit:
		return t.softFrom + cfg.OutputLimit.SoftFor, true
	case HeartbeatTimeout:
		return t.lastPing + cfg.Heartbeat.Retry, true
	case MaxAge:
		return l.openedFrom + cfg.MaxAge*9/10, true
	case Drained:
		return l.w.drain.at, true
	}
	return 0, false
}

// The methods below record events of the connection.

func (l *simLife) opening() {
	now := l.w.now
	l.openedAt, l.now.anew, l.now.arrival, l.now.newSent, l.now.anySent = now, now, now, now, now
	if l.now.received == 0 {
		l.now.came = now
	}
}

func (l *simLife) opened() {
	l.openedAt, l.now.anew, l.now.anewFrom = l.w.now, l.w.now, l.openedFrom
	if l.w.cfg.MinRate.Always {
		l.now.message = l.openedFrom
	}
}

func (l *simLife) beforeHearing() { l.check() }

func (l *simLife) arrived(n int) {
	l.now.arrival, l.now.came, l.now.unread = l.w.now, l.w.now, true
	l.now.received += n
	if l.w.cfg.Heartbeat.Interval > 0 && l.w.cfg.Heartbeat.IsPong == nil {
		l.now.pings = 0
	}
	if l.w.cfg.MinRate.BytesPerSecond > 0 {
		l.bytes = append(l.bytes, simBytes{l.w.now, n})
	}
	l.w.trace(l, "bytes arrive", n)
}

func (l *simLife) reading(int) { l.now.unread = l.sock.unread > 0 }

func (l *simLife) read() {
	if l.isOpen {
		l.now.handled = l.w.now
		l.w.heardAt = l.w.now
		l.el.hear()
	}
}

// question is called when the kernel is asked about the connection.
func (l *simLife) question() {
	if l.now.unread = l.sock.unread > 0; l.now.unread {
		l.now.handled = l.w.now
		l.w.heardAt = l.w.now
		l.el.hear()
	}
	l.now.outbound, l.now.open = l.sock.conn.outbound, l.w.open
	if l.now.newSent > l.asked.newSent || l.now.took > l.asked.took {
		l.now.dated = l.now.anySent
	}
	if l.w.now-l.judged > l.w.cfg.Tick/2 {
		l.prior = l.asked
	}
	l.asked, l.judged = l.now, l.w.now
	l.asked.ended = l.sock.rst || l.sock.fin && l.sock.unread == 0
}

func (l *simLife) wrote() {
	l.check()
	l.now.newSent, l.now.anySent = l.w.now, l.w.now
}

func (l *simLife) resent() {
	l.check()
	l.now.anySent = l.w.now
}

func (l *simLife) took() {
	l.check()
	l.now.took, l.now.changed = l.w.now, l.w.now
}

// pending is called when the amount of output in the kernel has changed.
func (l *simLife) pending() {
	l.now.changed = l.w.now
	switch {
	case l.sock.queued == 0:
		l.now.waits = 0
	case l.now.waits == 0:
		l.now.waits = l.w.now
	}
}

// buffered is called when the amount of output in the buffer of the loop has changed.
func (l *simLife) buffered(n int) {
	l.check()
	l.now.changed = l.w.now
	limit := l.w.cfg.OutputLimit
	l.markSoft(limit.Soft > 0 && n > limit.Soft)
}

// markSoft records whether output is above the soft limit. The Reaper cannot see dips between two
// checks.
func (l *simLife) markSoft(above bool) {
	t := &l.now
	switch unseen := l.w.cfg.OutputLimit.SoftFor/4 + 3*l.w.cfg.Tick; {
	case above && t.soft == 0:
		if t.soft = l.w.now; t.softFrom == 0 || t.soft-t.dip > unseen+l.absence(t.dip) {
			t.softFrom = t.soft
		}
	case !above && t.soft != 0:
		t.soft, t.dip = 0, l.w.now
	}
}

// noticing returns the interval between two checks of output against a limit. The output waits since
// the given instant.
func (l *simLife) noticing(limit, since time.Duration) time.Duration {
	if l.el.wasQuiet(since) {
		return limit
	}
	return limit / 4
}

// checkEvery returns the interval at which output is checked on a loop that is not quiet.
func (w *simWorld) checkEvery() time.Duration {
	every := never
	if w.cfg.OutputLimit.Hard > 0 {
		every = time.Second
	}
	for _, limit := range []time.Duration{w.cfg.OutputLimit.SoftFor, w.cfg.WriteStallTimeout} {
		if limit > 0 {
			every = min(every, limit/4)
		}
	}
	return max(every, w.cfg.Tick)
}

func (l *simLife) ended() {
	l.check()
	l.now.ended = true
}

func (l *simLife) ready() { l.check(); l.now.ready = true }

// touching and touched are called before and after a call that restarts the timeouts.
func (l *simLife) touching() {
	l.check()
	l.touchFrom = l.w.now
}

func (l *simLife) touched() { l.now.anewFrom, l.now.anew = l.touchFrom, l.w.now }

func (l *simLife) held() { l.check(); l.now.holds++ }

func (l *simLife) released() {
	if l.now.holds--; l.now.holds == 0 {
		l.touched()
	}
}

func (l *simLife) exempt(on bool) {
	if l.isExempt, l.now.exempt = on, on; !on {
		l.resumedAt = l.w.now
	}
	l.touched()
}

func (l *simLife) message(open bool) {
	if !open {
		l.now.message = 0
	} else if l.now.message == 0 {
		l.now.message = l.w.now
	}
}

func (l *simLife) setTimeouts(t Timeouts) {
	tick := l.w.cfg.Tick
	for _, d := range []*time.Duration{&t.Read, &t.Write, &t.All} {
		*d = (*d + tick - 1) / tick * tick
	}
	l.check()
	l.now.own, l.changedAt = &t, l.w.now
}

// idle is called by OnIdle.
func (l *simLife) idle(ev Event) {
	l.check()
	if ev.Reason != WriteIdle {
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
	t, last := &l.asked, l.asked.events[ev.Reason-ReadIdle]
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
	case !ev.First && (last == 0 || earliest > t.delivered[ev.Reason-ReadIdle]+slack):
		l.w.violate(l, "an event after activity is the first", fmt.Sprintf("event %+v at %v, activity at %v, last %v", ev, l.w.now, earliest, last))
	case last != 0 && last > t.anew && l.judged < max(last, l.changedAt)+l.limitOf(ev.Reason) && l.changedAt == 0:
		l.w.violate(l, fmt.Sprintf("one event in each timeout, the last was at %v", last), fmt.Sprintf("event %+v", ev))
	case ev.Idle < l.judged-latest-slack-vague || ev.Idle > l.w.now-earliest+slack+vague: // the clock is read after the question
		l.w.violate(l, fmt.Sprintf("Idle is %v to %v", l.judged-latest, l.w.now-earliest), fmt.Sprintf("event %+v", ev))
	}
}

func (l *simLife) limitOf(k Reason) time.Duration {
	t := l.timeouts()
	return [...]time.Duration{t.Read, t.Write, t.All}[k-ReadIdle]
}

// activity returns the bounds of the last activity that ends an idle state.
func (l *simLife) activity(t *simTruth, k Reason) (earliest, latest time.Duration) {
	switch k {
	case ReadIdle:
		return max(t.arrival, t.anewFrom), t.heard()
	case WriteIdle:
		return max(t.newSent, t.anewFrom), max(t.anySent, t.anew)
	}
	if l.w.family != simTCP {
		return max(t.arrival, t.anewFrom), t.heard()
	}
	return max(t.arrival, t.newSent, t.anewFrom), max(t.heard(), t.anySent)
}

// pinged is called when the Reaper sends a ping.
func (l *simLife) pinged() {
	t, h := &l.asked, &l.w.cfg.Heartbeat
	if due := max(t.arrival, t.anewFrom) + h.Interval; l.judged < due {
		l.w.violate(l, fmt.Sprintf("no ping before %v", due), fmt.Sprintf("one is sent at %v", l.w.now))
	}
	l.now.pings++
	l.now.lastPing = l.judged
}

// spared is called when OnIdle has kept the connection.
func (l *simLife) spared(k Reason) {
	l.now.events[k-ReadIdle], l.now.delivered[k-ReadIdle] = l.eventAt, l.deliveredAt
}

// closed is called by OnClose.
func (l *simLife) closed(err error) {
	w := l.w
	if l.wasClosed || !l.isOpen {
		w.violate(l, "one OnClose per OnOpen", "OnClose came again")
		return
	}
	w.trace(l, "OnClose", err)
	var e *ReapError
	switch {
	case errors.As(err, &e):
		l.reaped(e)
	case errors.Is(err, io.EOF):
		w.eofs++
		l.check()
	case err != nil:
		w.errs++
		l.check()
	default:
		l.check()
	}
	if l.w.failure == nil && e != nil {
		l.check()
	}
	l.isOpen, l.wasClosed = false, true
	w.open--
}
