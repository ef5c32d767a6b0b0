package idle

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// early returns the promise that was broken if a connection was closed too early, otherwise "".
func (l *simLife) early(e *ReapError) string {
	w, t, cfg := l.w, &l.asked, &l.w.cfg
	since, limit := l.openedFrom, time.Duration(0)
	heard := max(t.arrival, t.handled, t.anew)
	away, needsLoop := l.w.wasOut(l.askedFrom), false
	switch e.Reason {
	case reap.ReadIdle, reap.AllIdle:
		return l.earlyIdle(e.Reason)
	case reap.WriteIdle:
		return "write idle closes nothing by itself"
	case reap.NoFirstByte:
		if limit = cfg.FirstByteTimeout; t.received > 0 || limit == 0 {
			return "no first byte: a byte had arrived"
		}
	case reap.NoHandshake:
		if limit = cfg.HandshakeTimeout; t.ready || limit == 0 {
			return "no handshake: it was ready"
		}
		needsLoop = true
	case reap.WriteStall:
		since, limit = max(t.waits, t.took, l.resumedAt), cfg.WriteStallTimeout
		if t.waits == 0 && t.outbound == 0 {
			return "write stall: no output waits"
		}
		if w.family == simBSD && t.outbound == l.prior.outbound { // reads of the peer are invisible
			since = l.resumedAt
		}
		needsLoop = true
	case reap.OverLimit:
		if e.TotalBytes > 0 {
			return l.earlyTotal(e)
		}
		if e.Limit == 0 {
			if t.outbound <= cfg.OutputLimit.Hard {
				return fmt.Sprintf("over limit: %d bytes wait, limit %d", t.outbound, cfg.OutputLimit.Hard)
			}
			return ""
		}
		if t.outbound <= cfg.OutputLimit.Soft {
			return "over limit: output is below the soft limit"
		}
		since, limit, needsLoop = t.softFrom, cfg.OutputLimit.SoftFor, true
	case reap.BelowMinRate:
		return l.earlyMinRate(e)
	case reap.HeartbeatTimeout:
		return l.earlyHeartbeat()
	case reap.MaxAge:
		if due := since + cfg.MaxAge*9/10 + cfg.MaxAgeGrace; l.w.now < due {
			return fmt.Sprintf("max age: not before %v", due)
		}
		return ""
	case reap.Drained:
		return l.earlyDrained()
	case reap.Kicked:
		if !l.isKicked {
			return "kicked: Kick was not called"
		}
		return ""
	case reap.Shed:
		return l.earlyShed()
	}
	if e.Reason == reap.WriteStall || e.Reason == reap.OverLimit {
		since = max(since, l.judged-e.Lasted) // the Reaper checks at intervals
	}
	due := l.earliest(since, limit, heard, away)
	if needsLoop {
		due = l.earliestWithLoop(since, limit, heard)
	}
	if l.judged < due {
		return fmt.Sprintf("%v: not before %v (since %v; outages %v)", e.Reason, due, since, away)
	}
	return ""
}

// earliestWithLoop is earliest for a limit that needs the loop. Blocked time extends it by at most
// the limit.
func (l *simLife) earliestWithLoop(since, limit, heard time.Duration) time.Duration {
	due, blocked := since+limit, time.Duration(0)
	counted := since + l.rounding()
	for _, o := range l.el.certainStalls(l.askedFrom) {
		if part := o.to - max(o.from, counted); part > 0 && o.from < due+blocked {
			blocked += part
		}
	}
	return l.earliest(since, limit+min(blocked, limit), heard, l.w.wasOut(l.askedFrom))
}

// rounding is how much later than the event the Reaper may begin to count.
func (l *simLife) rounding() time.Duration {
	return 2*l.w.cfg.Tick + 2*(l.w.jiffy+time.Millisecond)
}

// earliest returns the deadline of a limit after all certain outages.
func (l *simLife) earliest(since, limit, heard time.Duration, away simIntervals) time.Duration {
	due, grace := since+limit, l.w.grace()
	since += l.rounding()
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

func (l *simLife) earlyIdle(k Reason) string {
	defer func(now simTruth) { l.now = now }(l.now)
	l.now = l.asked
	t, timeouts := &l.asked, l.timeouts()
	if t.holds > 0 {
		return fmt.Sprintf("%v: it was held", k)
	}
	since, limit := max(t.arrival, t.returned, t.anewFrom), timeouts.Read
	if k == reap.AllIdle {
		if limit = timeouts.All; l.w.family == simTCP {
			since = max(since, t.newSent)
		}
	}
	if limit == 0 {
		return fmt.Sprintf("%v: the limit is off", k)
	}
	heard, away := max(t.arrival, t.handled, t.anew), l.w.wasOut(l.askedFrom)
	due := l.earliest(since, limit, heard, away)
	if k == reap.AllIdle && l.w.family == simTCP { // a retransmission may count
		due = min(due, l.earliest(max(since, t.anySent), limit, heard, away))
	}
	if l.judged < due {
		return fmt.Sprintf("%v: not before %v (since %v, limit %v)", k, due, since, limit)
	}
	return ""
}

func (l *simLife) earlyMinRate(e *ReapError) string {
	t, rate := &l.asked, &l.w.cfg.MinRate
	if t.message == 0 {
		return "below min rate: no message is open"
	}
	// The Reaper chooses the beginning of the window.
	since := max(t.message+rate.Grace, l.judged-e.Lasted)
	due := l.earliestWithLoop(since, rate.Window, max(t.arrival, t.handled, t.anew))
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

func (l *simLife) earlyHeartbeat() string {
	t, h := &l.asked, &l.w.cfg.Heartbeat
	if t.pings < h.MaxMissed {
		return fmt.Sprintf("heartbeat timeout: %d pings were sent since the peer was last heard, limit %d", t.pings, h.MaxMissed)
	}
	due := l.earliest(t.lastPing, h.Retry, max(t.arrival, t.handled, t.anew), l.w.wasOut(l.askedFrom))
	if h.IsPong == nil {
		due = max(due, max(t.arrival, l.openedFrom)+h.Interval+time.Duration(h.MaxMissed)*h.Retry)
	}
	if l.judged < due {
		return fmt.Sprintf("heartbeat timeout: not before %v (last ping %v)", due, t.lastPing)
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
	if l.w.family == simTCP && !t.resent {
		silent = min(silent, l.judged-t.newSent)
	}
	switch {
	case w.cfg.MaxConnections == 0:
		return "shed: there is no limit"
	case t.holds > 0:
		return "shed: it was held"
	case silent < w.cfg.ShedProtect:
		return fmt.Sprintf("shed: only after a silence of %v", w.cfg.ShedProtect)
	// Each loop may have one connection in OnOpen.
	case max(t.open, l.el.openThen)+len(w.loops) < w.cfg.MaxConnections-max(w.cfg.MaxConnections/16, 1):
		return fmt.Sprintf("shed: there is room, %d connections are open of %d, Connections said %d", t.open, w.cfg.MaxConnections, w.reaper.Connections())
	}
	return ""
}
