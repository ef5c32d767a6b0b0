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

// rules has the rules of all reasons with a deadline.
var rules = [...]func(l *Life, t *Truth, s *Settings) rule{
	reap.ReadIdle:  func(l *Life, t *Truth, _ *Settings) rule { return l.idleRule(reap.ReadIdle, t) },
	reap.WriteIdle: func(l *Life, t *Truth, _ *Settings) rule { return l.idleRule(reap.WriteIdle, t) },
	reap.AllIdle:   func(l *Life, t *Truth, _ *Settings) rule { return l.idleRule(reap.AllIdle, t) },
	reap.NoFirstByte: func(l *Life, t *Truth, s *Settings) rule {
		if t.received > 0 && !l.LosesInput() {
			return rule{}
		}
		return rule{limit: s.FirstByteTimeout, from: l.OpenedFrom, to: l.OpenedAt, vague: t.received > 0}
	},
	reap.NoHandshake: func(l *Life, t *Truth, s *Settings) rule {
		if t.ready {
			return rule{}
		}
		return rule{limit: s.HandshakeTimeout, from: l.OpenedFrom, to: l.OpenedAt, loop: true}
	},
	reap.WriteStall: func(l *Life, t *Truth, s *Settings) rule {
		if s.WriteStallTimeout == 0 || t.waits == 0 && t.outbound == 0 {
			return rule{}
		}
		r := rule{limit: s.WriteStallTimeout, loop: true, vague: t.waits == 0 || l.w.Family == BSD}
		// For output in the kernel there is one question in each timeout, at the next check.
		r.polled = r.limit + l.Loop.noticing(r.limit, t.waits) + 3*s.Tick
		r.from = max(t.waits, t.took, l.resumedAt)
		r.to = max(r.from, t.newSent, l.w.changedAt)
		if l.w.Family != TCP {
			r.to = max(r.to, t.heard(), t.changed)
		}
		return r
	},
	reap.OverLimit: func(l *Life, t *Truth, s *Settings) rule {
		if t.soft == 0 {
			return rule{}
		}
		limit := s.OutputLimit.SoftFor
		return rule{limit: limit, from: t.softFrom, to: max(t.soft, l.resumedAt, l.w.changedAt), loop: true,
			polled: l.Loop.noticing(limit, t.soft) + 3*s.Tick}
	},
	reap.BelowMinRate: func(l *Life, t *Truth, s *Settings) rule {
		if t.message == 0 {
			return rule{}
		}
		// There may be one window with enough bytes, and one without.
		r := rule{limit: 2 * s.MinRate.Window, from: t.message + s.MinRate.Grace, loop: true, polled: 6 * s.Tick}
		r.to = max(r.from, t.heard(), l.OpenedAt+s.MinRate.Grace, l.w.changedAt)
		_, stops := l.w.Away.Within(r.to-l.w.Longest, l.w.Now)
		r.vague = l.w.Family != TCP || r.to > l.w.Now || stops > 0 // windows may be put off
		return r
	},
	reap.HeartbeatTimeout: func(l *Life, t *Truth, s *Settings) rule {
		h := &s.Heartbeat
		if h.Interval == 0 {
			return rule{}
		}
		r := rule{limit: h.Interval + time.Duration(h.MaxMissed)*h.Retry, to: max(t.heard(), t.tookSome, l.w.changedAt)}
		r.from = t.lastPing + h.Retry - r.limit
		r.vague = s.MaxAge > 0 || l.w.Decides // it may be in its grace, or OnIdle may write to it
		return r
	},
	reap.HalfClosed: func(l *Life, t *Truth, s *Settings) rule {
		if t.finished == 0 {
			return rule{}
		}
		r := rule{limit: s.HalfClosedTimeout, polled: s.HalfClosedTimeout/4 + 3*s.Tick, vague: l.Sock.Rst}
		r.from, r.to = t.finished, max(t.finished, l.OpenedAt, l.w.changedAt)
		return r
	},
	reap.MaxAge: func(l *Life, _ *Truth, s *Settings) rule {
		return rule{limit: s.MaxAge, from: l.OpenedFrom - s.MaxAge/10, to: l.OpenedAt, stage: l.OpenedAt + s.MaxAge*9/10}
	},
	reap.Drained: func(l *Life, _ *Truth, _ *Settings) rule {
		d := &l.w.drain
		if d.done == 0 {
			return rule{}
		}
		return rule{limit: d.deadline, from: d.at - d.deadline, to: max(d.done, l.OpenedAt)}
	},
}

// idleRule returns the rule of an idle reason.
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

// rule returns the rule of a limit by what is known.
func (l *Life) rule(k reap.Reason, t *Truth) rule {
	r := rules[k](l, t, l.set(t))
	if k >= reap.WriteStall && k != reap.MaxAge { // the first check may be late
		r.stage = r.to
	}
	return r
}
