package verdict

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// Never is a deadline that never passes.
const Never = mono.Time(1<<63 - 1)

// A Reason says why a connection is closed. If several deadlines passed at the same instant, Judge
// returns the smallest Reason.
type Reason = reap.Reason

const (
	First       = reap.ReadIdle
	LastDue     = reap.Drained // later reasons have no deadline
	Last        = reap.Shed
	IdleReasons = int(reap.AllIdle) // the first ones are idle events
)

// IsIdle reports whether a reason is an idle event.
func IsIdle(r Reason) bool { return r >= First && int(r) <= IdleReasons }

// An Act is the action that a verdict requires.
type Act uint8

const (
	Wait  Act = iota
	Raise     // an idle event
	Ping
	Farewell
	End
)

// A Verdict is the outcome of a judgement.
type Verdict struct {
	Act    Act
	Reason Reason    // the limit with the passed deadline
	Due    mono.Time // that deadline
	Next   mono.Time // when to judge again, if the act is Wait
	PutOff bool      // a deadline has passed, and an outage puts the verdict off
}

// A deadline is the instant at which a limit is reached. One without a limit is never put off.
type deadline struct {
	since mono.Time
	limit time.Duration
	due   mono.Time
}

var none = deadline{due: Never}

// after returns the deadline of a limit that counts from an instant, if the limit is on and
// applies.
func after(since mono.Time, limit time.Duration, applies bool) deadline {
	if limit == 0 || !applies {
		return none
	}
	return deadline{since, limit, since.Add(limit)}
}

// Judge returns the verdict about a connection. The earliest of the passed deadlines is the reason,
// so that a late judgement gives the same reason as one in time.
func (lim *Limits) Judge(f *Facts, away *Away, now mono.Time) Verdict {
	v := Verdict{Due: Never, Next: now.Add(lim.Horizon)}
	for r := First; r <= LastDue; r++ {
		raw := lim.deadline(r, f)
		if raw == none {
			continue
		}
		away := away.Of(r)
		switch due := lim.fair(r, raw, f, away, now); {
		case due > now:
			v.PutOff = v.PutOff || raw.due <= now
			v.Next = min(v.Next, lim.review(r, raw, due, now, len(away.Holds) > 0))
		case due < v.Due:
			v.Reason, v.Due = r, due
		}
	}
	if v.Reason != 0 {
		v.Act, v.PutOff = lim.act(v.Reason, f), false
	}
	if f.OutputWaits() {
		if every := lim.PollOutput(); every > 0 {
			v.Next = min(v.Next, now.Add(every))
		}
	}
	if lim.Drain != (Drain{}) && f.Output > 0 {
		v.Next = min(v.Next, now.Add(drainPoll))
	}
	if f.RatedSince != 0 && !f.Counting {
		v.Next = min(v.Next, max(f.RatedSince, now.Add(lim.Tick)))
	}
	return v
}

// review returns the instant of the next judgement for a deadline that has not passed. If an outage
// has put it off, a byte of the peer ends that, and the next deadline is one limit after the byte.
// A silence that may hold the verdict may be over when the deadline passes, or soon after it.
func (lim *Limits) review(r Reason, raw deadline, due, now mono.Time, held bool) mono.Time {
	if due == raw.due || held && raw.due > now {
		return raw.due
	}
	wait := raw.limit
	if r == reap.HeartbeatTimeout {
		wait = lim.Heartbeat.Interval
	}
	if held {
		wait = min(wait, max(lim.whole(r, raw)/holdPolls, lim.Tick))
	}
	return min(due, now.Add(wait))
}

// fair returns the deadline without the times for which the peer is not responsible.
func (lim *Limits) fair(r Reason, d deadline, f *Facts, away *Away, now mono.Time) mono.Time {
	rule := &rules[r]
	if d.limit == 0 || !rule.server || lim.act(r, f) == Ping { // a ping does no harm
		return d.due
	}
	heard := f.heardAfter(lim.Tick)
	due := lim.putOff(d, heard, away)
	if lim.Grace >= 0 {
		most, whole := due.Add(lim.Hold), lim.whole(r, d)
		for _, since := range away.Holds { // each that has begun before the end of the one before it
			if since <= due {
				due = max(due, min(lim.holdEnd(since, d, whole, heard, away), most))
			}
		}
	}
	if rule.loop {
		due = max(due, lim.putOffLoop(d, heard, away))
	}
	if r == reap.NoHandshake && f.Unread && due <= now { // the waiting bytes may complete it
		due = min(now.Add(lim.Tick), due.Add(d.limit))
	}
	return due
}

// holdEnd returns the end of a hold by a silence: two limits after the last byte of any of its
// peers, less three ticks because of rounding. Times in which the server was away do not count,
// within the bound of all outages.
func (lim *Limits) holdEnd(since mono.Time, d deadline, whole time.Duration, heard mono.Time, away *Away) mono.Time {
	least := since.Add(2*whole - 3*lim.Tick)
	end := least
	for _, o := range away.Server {
		if o.From <= end {
			end = end.Add(o.after(since))
		}
	}
	return max(least, min(end, lim.bound(d, heard, away.All)))
}

// whole returns the whole time of a limit. A heartbeat has several deadlines in a row.
func (lim *Limits) whole(r Reason, d deadline) time.Duration {
	if r == reap.HeartbeatTimeout {
		return lim.Heartbeat.whole()
	}
	return d.limit
}

func (lim *Limits) act(r Reason, f *Facts) Act {
	switch {
	case IsIdle(r):
		return Raise
	case r == reap.HeartbeatTimeout && f.Missed < lim.Heartbeat.MaxMissed:
		return Ping
	case r == reap.MaxAge && !f.Leaving && lim.AgeGrace > 0:
		return Farewell
	default:
		return End
	}
}

// A Report has the figures behind a verdict.
type Report struct {
	First  bool          // the idle event is the first since the last activity
	Limit  time.Duration // the configured limit, 0 if it is not a duration
	Lasted time.Duration // the time that the connection was in the state that is limited
	Late   time.Duration // the time since the deadline
	Bytes  int           // waiting output, or received bytes
	Least  int           // the limit of Bytes
}

// Report returns the figures behind a verdict with the act Raise, Farewell or End. If a change of
// the limits has brought the deadline forward into the past, Late counts from the change.
func (lim *Limits) Report(v Verdict, f *Facts, now mono.Time) Report {
	p := Report{Late: now.Sub(lim.passed(v.Reason, f, v.Due))}
	if rule := &rules[v.Reason]; rule.report != nil {
		rule.report(lim, f, v, now, &p)
	} else {
		p.Limit, p.Lasted = rule.limit(lim), now.Sub(rule.since(f))
	}
	return p
}

// passed returns the instant at which a deadline of a reason has passed: at the change that brought
// it forward into the past, if there was one.
func (lim *Limits) passed(r Reason, f *Facts, due mono.Time) mono.Time {
	if old := lim.Previous; old != nil {
		due = max(due, min(lim.Since, old.passed(r, f, old.deadline(r, f).due)))
	}
	return due
}
