package sim

import (
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
		r.limit, r.vague = when(t.received == 0 || l.LosesInput(), s.FirstByteTimeout), t.received > 0
	case reap.NoHandshake:
		r.limit, r.loop = when(!t.ready, s.HandshakeTimeout), true
	case reap.WriteStall:
		r = l.stallRule(t, s)
	case reap.OverLimit:
		r = rule{limit: when(t.soft != 0, s.OutputLimit.SoftFor), from: t.softFrom, loop: true}
		r.to = max(t.soft, l.resumedAt, l.w.changedAt)
		r.polled = l.Loop.noticing(r.limit, t.soft) + 3*s.Tick
	case reap.BelowMinRate:
		r = l.rateRule(t, s)
	case reap.HeartbeatTimeout:
		h := &s.Heartbeat
		r.limit = when(h.Interval > 0, h.Interval+time.Duration(h.MaxMissed)*h.Retry)
		r.from, r.to = t.lastPing+h.Retry-r.limit, max(t.heard(), t.tookSome, l.w.changedAt)
		r.vague = s.MaxAge > 0 || l.w.Decides // it may be in its grace, or OnIdle may write to it
	case reap.HalfClosed:
		r = rule{limit: when(t.finished != 0, s.HalfClosedTimeout), from: t.finished, vague: l.Sock.Rst}
		r.to, r.polled = max(t.finished, l.OpenedAt, l.w.changedAt), r.limit/4+3*s.Tick
	case reap.MaxAge:
		r.limit, r.from, r.stage = s.MaxAge, l.OpenedFrom-s.MaxAge/10, l.OpenedAt+s.MaxAge*9/10
	case reap.Drained:
		d := &l.w.drain
		r = rule{limit: when(d.done != 0, d.deadline), from: d.at - d.deadline, to: max(d.done, l.OpenedAt)}
	}
	if k >= reap.WriteStall && k != reap.MaxAge { // the first check may be late
		r.stage = r.to
	}
	return r
}

// when returns a limit that applies, otherwise 0.
func when(applies bool, limit time.Duration) time.Duration {
	if applies {
		return limit
	}
	return 0
}

func (l *Life) stallRule(t *Truth, s *Settings) rule {
	r := rule{limit: when(t.waits != 0 || t.outbound > 0, s.WriteStallTimeout), loop: true}
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
	r := rule{limit: when(t.message != 0, 2*s.MinRate.Window), loop: true, polled: 6 * s.Tick}
	r.from = t.message + s.MinRate.Grace
	r.to = max(r.from, t.heard(), l.OpenedAt+s.MinRate.Grace, l.w.changedAt)
	_, stops := l.w.Away.Within(r.to-l.w.Longest, l.w.Now)
	r.vague = l.w.Family != TCP || r.to > l.w.Now || stops > 0 // windows may be put off
	return r
}

func (l *Life) idleRule(k reap.Reason, t *Truth) rule {
	if t.holds > 0 {
		return rule{}
	}
	w, r := l.w, rule{limit: l.timeouts(t)[k-reap.ReadIdle]}
	r.from, r.to = l.activity(t, k)
	if k == reap.WriteIdle {
		r.vague = w.Family != TCP || !w.Decides
	} else {
		r.from = max(r.from, t.returned)
	}
	if k != reap.ReadIdle {
		r.to = max(r.to, w.Away.end(t.anySent))
	}
	r.to = max(r.to, t.delivered[k-reap.ReadIdle], l.ownAt, w.observedTo)
	return r
}
