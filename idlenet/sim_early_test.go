package idlenet

import (
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/reap"
)

// early returns the promise that was broken if a connection ended too early, otherwise "".
func (l *simLife) early(e *ReapError) string {
	w, t, cfg := l.w, &l.asked, &l.askedCfg
	since, limit := l.openedFrom, time.Duration(0)
	switch e.Reason {
	case reap.ReadIdle, reap.AllIdle:
		return l.earlyIdle(e.Reason)
	case reap.WriteIdle:
		if !w.decides || l.keeps {
			return "write idle ends nothing by itself"
		}
		return l.earlyIdle(e.Reason)
	case reap.NoFirstByte:
		lost := w.unix && l.sock.rst // the bytes that the server has not read
		if limit = cfg.FirstByteTimeout; t.received > 0 && !lost || limit == 0 {
			return "no first byte: a byte had arrived"
		}
	case reap.NoHandshake:
		if limit = cfg.HandshakeTimeout; t.ready || limit == 0 {
			return "no handshake: it was ready"
		}
	case reap.WriteStall:
		if t.waits == 0 {
			return "write stall: no output waits"
		}
		since, limit = max(t.waits, t.took, l.judged-e.Lasted), cfg.WriteStallTimeout
	case reap.BelowMinRate:
		return l.earlyMinRate(e)
	case reap.HeartbeatTimeout:
		return l.earlyHeartbeat()
	case reap.MaxAge:
		if due := since + cfg.MaxAge*9/10 + cfg.MaxAgeGrace; w.now < due || cfg.MaxAge == 0 {
			return fmt.Sprintf("max age: not before %v", due)
		}
		return ""
	case reap.Drained:
		return l.earlyDrained()
	case reap.Kicked:
		if l.kickedAt == 0 {
			return "kicked: Kick was not called"
		}
		return ""
	case reap.Shed:
		return l.earlyShed()
	default:
		return fmt.Sprintf("there is no reason %v", e.Reason)
	}
	if due := l.earliest(since, limit); l.judged < due {
		return fmt.Sprintf("%v: not before %v (since %v; outages %v)", e.Reason, due, since, w.wasOut(l.askedFrom))
	}
	return ""
}

// earliest returns the deadline of a limit after all outages that certainly count.
func (l *simLife) earliest(since, limit time.Duration) time.Duration {
	w, t := l.w, &l.asked
	heard := max(t.arrival, t.handled, t.anew)
	due, grace := since+limit, w.grace()
	since += 2*w.cfg.Tick + 2*(w.jiffy+time.Millisecond) // the Listener may begin to count later
	for _, o := range w.wasOut(l.askedFrom) {
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
	t, cfg := &l.asked, &l.askedCfg
	if t.holds > 0 {
		return fmt.Sprintf("%v: it was held", k)
	}
	if t.isOver && l.w.unix {
		return ""
	}
	var due, limit time.Duration
	switch k {
	case reap.ReadIdle:
		limit = cfg.ReadTimeout
		due = l.earliest(max(t.arrival, t.anewFrom), limit)
	case reap.WriteIdle:
		limit = cfg.WriteTimeout
		due = max(t.newSent, t.anewFrom) + limit
	case reap.AllIdle:
		limit = cfg.AllTimeout
		since := max(t.arrival, t.anewFrom, t.newSent)
		due = min(l.earliest(since, limit), l.earliest(max(since, t.anySent), limit))
	}
	switch {
	case limit == 0:
		return fmt.Sprintf("%v: the limit is off", k)
	case t.unread && k != reap.WriteIdle:
		return fmt.Sprintf("%v: bytes of the peer wait", k)
	case l.judged < due:
		return fmt.Sprintf("%v: not before %v (outages %v)", k, due, l.w.wasOut(l.askedFrom))
	}
	return ""
}

func (l *simLife) earlyMinRate(e *ReapError) string {
	t, rate := &l.asked, &l.askedCfg.MinRate
	if t.message == 0 {
		return "below min rate: no message is open"
	}
	if t.unread {
		return "below min rate: bytes wait unread"
	}
	// The Listener chooses the beginning of the window.
	since := max(t.message+rate.Grace, l.judged-e.Lasted)
	if due := l.earliest(since, rate.Window); l.judged < due {
		return fmt.Sprintf("below min rate: not before %v", due)
	}
	n, least := 0, int(float64(rate.BytesPerSecond)*rate.Window.Seconds()+0.999999)
	for _, b := range l.bytes {
		if b.at > l.judged-rate.Window && b.at < l.judged {
			n += b.n
		}
	}
	if n >= least {
		return fmt.Sprintf("below min rate: %d bytes came in the window, %d are enough", n, least)
	}
	return ""
}

func (l *simLife) earlyHeartbeat() string {
	t, h := &l.asked, &l.askedCfg.Heartbeat
	if t.pings < h.MaxMissed {
		return fmt.Sprintf("heartbeat timeout: %d pings were sent since the peer was last heard, limit %d", t.pings, h.MaxMissed)
	}
	decided := t.lastPing // a short stop, which is no outage, may delay the call of Ping
	if l.w.kind != simCalm {
		decided -= l.w.least()
	}
	due := l.earliest(decided, h.Retry)
	due = max(due, max(t.arrival, l.openedFrom)+h.Interval+time.Duration(h.MaxMissed)*h.Retry)
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
	case l.asked.holds > 0 && l.judged < d.at+d.deadline:
		return fmt.Sprintf("drained: a held connection not before %v", d.at+d.deadline)
	}
	return ""
}

func (l *simLife) earlyShed() string {
	t, cfg := &l.asked, &l.askedCfg
	silent := l.judged - max(t.arrival, t.anewFrom)
	if !l.w.unix && !t.resent {
		silent = min(silent, l.judged-t.newSent)
	}
	switch {
	case t.isOver: // a reset of the peer discards what it has sent
		return ""
	case cfg.MaxConnections == 0 || t.open < cfg.MaxConnections:
		return "shed: there is room"
	case t.holds > 0:
		return "shed: it was held"
	case silent < cfg.ShedProtect:
		return fmt.Sprintf("shed: only after a silence of %v, not %v", cfg.ShedProtect, silent)
	}
	return ""
}
