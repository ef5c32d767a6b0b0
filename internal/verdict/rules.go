package verdict

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// A rule is all that the judge knows of one reason.
type rule struct {
	// limit returns the time that the peer has, 0 if the limit is off.
	limit func(lim *Limits) time.Duration
	// since returns the instant from which the limit counts, 0 if it does not apply now.
	since func(f *Facts) mono.Time
	// server says that the peer can keep the limit only while the server hears and answers it.
	server bool
	// loop says that the peer can keep the limit only while its event loop runs as well.
	loop bool

	// The functions below are for limits that are more than one time. If nil, limit and since say
	// it all.
	deadline func(lim *Limits, f *Facts) deadline
	report   func(lim *Limits, f *Facts, v Verdict, now mono.Time, p *Report) // Late is set
}

var rules = [LastDue + 1]rule{
	reap.ReadIdle:  idleRule(reap.ReadIdle, true, func(lim *Limits) time.Duration { return lim.Read }),
	reap.WriteIdle: idleRule(reap.WriteIdle, false, func(lim *Limits) time.Duration { return lim.Write }),
	reap.AllIdle:   idleRule(reap.AllIdle, true, func(lim *Limits) time.Duration { return lim.All }),
	reap.NoFirstByte: {
		limit:  func(lim *Limits) time.Duration { return lim.FirstByte },
		since:  func(f *Facts) mono.Time { return when(f.Fresh, f.Opened.To) },
		server: true,
	},
	reap.NoHandshake: {
		limit:  func(lim *Limits) time.Duration { return lim.Handshake },
		since:  func(f *Facts) mono.Time { return when(!f.Ready, f.Opened.To) },
		server: true,
		loop:   true,
	},
	reap.WriteStall: {
		limit:  func(lim *Limits) time.Duration { return lim.Stall },
		since:  func(f *Facts) mono.Time { return f.StalledSince },
		server: true,
		loop:   true,
	},
	reap.OverLimit: {
		limit: func(lim *Limits) time.Duration {
			if lim.Output.Hard == 0 {
				return lim.Output.SoftFor
			}
			// Outages are remembered for MaxTimeouts limits.
			return max(lim.Output.SoftFor, LargeFor/MaxTimeouts)
		},
		since:  func(f *Facts) mono.Time { return f.OverSince },
		server: true,
		loop:   true,
		deadline: func(lim *Limits, f *Facts) deadline {
			if hard := lim.hard(f); hard.due <= lim.soft(f).due {
				return hard
			}
			return lim.soft(f)
		},
		report: func(lim *Limits, f *Facts, _ Verdict, now mono.Time, p *Report) {
			p.Bytes, p.Least = f.Output, lim.Output.Hard
			switch hard := lim.hard(f); {
			case hard.due > lim.soft(f).due:
				p.Limit, p.Lasted, p.Least = lim.Output.SoftFor, now.Sub(f.OverSince), lim.Output.Soft
			case hard.due == 0: // the check has just found it
				p.Late = 0
			}
		},
	},
	reap.BelowMinRate: {
		limit:  func(lim *Limits) time.Duration { return lim.Rate.Window },
		since:  func(f *Facts) mono.Time { return when(f.Counting, f.RatedSince) },
		server: true,
		loop:   true,
		report: func(lim *Limits, f *Facts, _ Verdict, now mono.Time, p *Report) {
			p.Limit, p.Lasted = lim.Rate.Window, now.Sub(f.RatedSince)
			p.Bytes, p.Least = f.Taken, lim.leastInWindow()
		},
	},
	reap.HeartbeatTimeout: {
		limit:    func(lim *Limits) time.Duration { return lim.Heartbeat.whole() },
		server:   true,
		deadline: (*Limits).heartbeat,
		report:   (*Limits).reportNoAnswer,
	},
	reap.HalfClosed: {
		limit:  func(lim *Limits) time.Duration { return lim.HalfClosed },
		since:  func(f *Facts) mono.Time { return f.EndedSince },
		server: true,
	},
	reap.MaxAge: {
		limit: func(lim *Limits) time.Duration { return lim.Age },
		since: func(f *Facts) mono.Time { return f.Opened.To },
		deadline: func(lim *Limits, f *Facts) deadline {
			if f.Leaving && lim.Age > 0 {
				return deadline{f.LastPing, lim.AgeGrace, f.LastPing.Add(lim.AgeGrace)}
			}
			return after(f.Opened.To, lim.Age+Share(lim.Age, ageSpread*(2*f.Random-1)), true)
		},
	},
	reap.Drained: {
		deadline: func(lim *Limits, f *Facts) deadline { return deadline{due: lim.drained(f)} },
		report: func(lim *Limits, f *Facts, _ Verdict, now mono.Time, p *Report) {
			p.Lasted = max(now.Sub(f.known(reap.ReadIdle)), 0) // the kernel's clock has steps
			// It may have been held, until the deadline at most.
			free := min(f.active(reap.AllIdle), lim.Drain.Began.Add(lim.Drain.Deadline))
			p.Late = min(p.Late, max(now.Sub(free), 0))
		},
	},
}

// when returns an instant if a condition holds, and 0 otherwise.
func when(holds bool, at mono.Time) mono.Time {
	if !holds {
		return 0
	}
	return at
}

// deadline returns the deadline of a limit for a server that is never away.
func (lim *Limits) deadline(r Reason, f *Facts) deadline {
	rule := &rules[r]
	if rule.deadline != nil {
		return rule.deadline(lim, f)
	}
	since := rule.since(f)
	return after(since, rule.limit(lim), since != 0)
}

func idleRule(r Reason, server bool, timeout func(lim *Limits) time.Duration) rule {
	return rule{
		limit:  timeout,
		server: server,
		deadline: func(lim *Limits, f *Facts) deadline {
			if f.Held || f.Blind && r == reap.WriteIdle {
				return none
			}
			limit := timeout(lim)
			return after(max(f.active(r), f.Noticed[r-1]), limit+Share(limit, lim.Jitter*f.Random), true)
		},
		report: func(lim *Limits, f *Facts, v Verdict, now mono.Time, p *Report) {
			last, known := f.active(r), f.known(r)
			p.Limit, p.Lasted = timeout(lim), now.Sub(known)
			p.First = last > f.Noticed[r-1].Add(-lim.Tick) // Noticed is rounded up to the tick
			if p.First && p.Late == now.Sub(v.Due) {       // the deadline counts from the upper bound
				p.Late += last.Sub(known)
			}
		},
	}
}

// Longest returns the longest time of a limit that a peer can keep only while the server hears it.
func (lim *Limits) Longest() (longest time.Duration) {
	for r := First; r <= LastDue; r++ {
		if rule := &rules[r]; rule.server {
			longest = max(longest, rule.limit(lim))
		}
	}
	return longest + Share(longest, lim.Jitter)
}

// hard returns the deadline of the hard limit, 0 if more output waits than is allowed at all.
func (lim *Limits) hard(f *Facts) deadline {
	switch {
	case lim.Output.Hard == 0 || f.Output <= lim.Output.Hard:
		return none
	case f.Output > f.Large.Least+lim.Output.Hard || f.Large.Since == 0:
		return deadline{}
	}
	return after(f.Large.Since, LargeFor, true)
}

func (lim *Limits) soft(f *Facts) deadline {
	return after(f.OverSince, lim.Output.SoftFor, f.OverSince != 0)
}

func (lim *Limits) heartbeat(f *Facts) deadline {
	h := &lim.Heartbeat
	switch {
	case h.Interval == 0 || f.Leaving || f.NoPings:
		return none
	case f.Missed > 0:
		return after(f.LastPing, h.Retry, true)
	}
	alive := f.Heard.To
	if h.PongsOnly {
		alive = max(f.LastPing, f.Opened.To)
	}
	next := after(alive, h.Interval+Share(h.Interval, h.Jitter*f.Random), true)
	if !h.PongsOnly && f.Heard.To <= f.LastPing.Add(-lim.Tick) { // it takes output before a ping
		next.due = max(next.due, f.LastPing.Add(h.Retry))
	}
	return next
}

// drained returns the instant at which a drain closes a connection: spread evenly over Spread if
// the connection is idle, over the rest until Deadline if it is busy, and at Deadline if it is held
// or output waits that would be lost.
func (lim *Limits) drained(f *Facts) mono.Time {
	d, turn := lim.Drain, lim.DrainTurn(f.Random)
	switch {
	case d == Drain{}:
		return Never
	case f.Held || f.Output > 0:
		return d.Began.Add(d.Deadline)
	case f.active(reap.AllIdle) > turn.Add(-busyFor):
		return d.Began.Add(d.Spread + Share(d.Deadline-d.Spread, f.Random))
	}
	return turn
}

// DrainTurn returns the instant from which a connection may be closed by a drain, or Never if there
// is none.
func (lim *Limits) DrainTurn(random float64) mono.Time {
	if lim.Drain == (Drain{}) {
		return Never
	}
	return lim.Drain.Began.Add(Share(lim.Drain.Spread, random))
}

func (lim *Limits) reportNoAnswer(f *Facts, _ Verdict, now mono.Time, p *Report) {
	h := &lim.Heartbeat
	p.Limit, p.Lasted = h.whole(), now.Sub(f.known(reap.ReadIdle))
	if h.PongsOnly { // the first ping came an interval after the last pong
		firstPing := f.LastPing.Add(-time.Duration(f.Missed-1) * h.Retry)
		p.Lasted = now.Sub(firstPing) + h.Interval + Share(h.Interval, h.Jitter*f.Random)
	}
}
