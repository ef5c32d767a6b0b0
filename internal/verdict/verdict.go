package verdict

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// Never is a deadline that never passes.
const Never = mono.Time(1<<63 - 1)

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

// A deadline is the instant at which a limit is reached.
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
		due := lim.fair(r, raw, f, away, now)
		if due > now && raw.due <= now {
			v.PutOff = true
			if away.HeldSince != 0 { // the hold may end soon
				v.Next = min(v.Next, now.Add(max(lim.whole(r, raw)/holdPolls, lim.Tick)))
			}
		}
		switch {
		case due > now:
			v.Next = min(v.Next, lim.review(r, raw, due, now))
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
func (lim *Limits) review(r Reason, raw deadline, due, now mono.Time) mono.Time {
	limit := raw.limit
	if r == HeartbeatTimeout {
		limit = lim.Heartbeat.Interval
	}
	if due == raw.due || limit == 0 {
		return due
	}
	return min(due, now.Add(limit))
}

// deadline returns the deadline of a limit for a server that is never away.
func (lim *Limits) deadline(r Reason, f *Facts) deadline {
	switch r {
	case ReadIdle, WriteIdle, AllIdle:
		return lim.idle(r, f)
	case NoFirstByte:
		return after(f.Opened.To, lim.FirstByte, f.Fresh)
	case NoHandshake:
		return after(f.Opened.To, lim.Handshake, !f.Ready)
	case WriteStall:
		return after(f.StalledSince, lim.Stall, f.StalledSince != 0)
	case OverLimit:
		if lim.overHard(f) {
			return deadline{}
		}
		return after(f.OverSince, lim.Output.SoftFor, f.OverSince != 0)
	case BelowMinRate:
		return after(f.RatedSince, lim.Rate.Window, f.Counting)
	case HeartbeatTimeout:
		return lim.heartbeat(f)
	case MaxAge:
		if f.Leaving && lim.Age > 0 {
			return deadline{f.LastPing, lim.AgeGrace, f.LastPing.Add(lim.AgeGrace)}
		}
		return after(f.Opened.To, lim.Age+Share(lim.Age, ageSpread*(2*f.Random-1)), lim.Age > 0)
	case Drained:
		return deadline{due: lim.drained(f)}
	default:
		panic("BUG: verdict: no deadline for " + r.Error())
	}
}

func (lim *Limits) overHard(f *Facts) bool {
	return lim.Output.Hard > 0 && f.Output > lim.Output.Hard
}

func (lim *Limits) idle(r Reason, f *Facts) deadline {
	limit := lim.IdleLimit(r)
	if f.Held || f.Blind && r == WriteIdle {
		return none
	}
	return after(max(f.active(r).To, f.Noticed[r-1]), limit+Share(limit, lim.Jitter*f.Random), limit > 0)
}

func (lim *Limits) heartbeat(f *Facts) deadline {
	h := &lim.Heartbeat
	switch {
	case h.Interval == 0 || f.Leaving:
		return none
	case f.Missed > 0:
		return after(f.LastPing, h.Retry, true)
	}
	alive := f.Heard.To
	if h.PongsOnly {
		alive = max(f.LastPing, f.Opened.To)
	}
	return after(alive, h.Interval+Share(h.Interval, h.Jitter*f.Random), true)
}

// drained returns the instant at which a drain closes a connection: spread evenly over Spread if
// the connection is idle, over the rest until Deadline if it is busy, and at Deadline if it is held
// or output waits that would be lost.
func (lim *Limits) drained(f *Facts) mono.Time {
	d := lim.Drain
	turn := d.Began.Add(Share(d.Spread, f.Random))
	switch {
	case d == Drain{}:
		return Never
	case f.Held || f.Output > 0:
		return d.Began.Add(d.Deadline)
	case f.active(AllIdle).To > turn.Add(-busyFor):
		return d.Began.Add(d.Spread + Share(d.Deadline-d.Spread, f.Random))
	}
	return turn
}

// fair returns the deadline without the times for which the peer is not responsible.
func (lim *Limits) fair(r Reason, d deadline, f *Facts, away *Away, now mono.Time) mono.Time {
	if d.due == Never || !lim.needsServer(r, f) {
		return d.due
	}
	heard := f.heardAfter(lim.Tick)
	due, held := away.putOff(d, heard, lim.Grace)
	if held { // three ticks less, to close within two limits of the last byte despite rounding
		due = max(due, min(away.HeldSince.Add(2*lim.whole(r, d)-3*lim.Tick), due.Add(lim.Hold)))
	}
	if needsLoop(r) {
		due = max(due, away.putOffLoop(d, heard, lim.Grace))
	}
	if r == NoHandshake && f.Unread && due <= now { // the waiting bytes may complete it
		due = min(now.Add(lim.Tick), due.Add(d.limit))
	}
	return due
}

// whole returns the whole time of a limit. A heartbeat has several deadlines in a row.
func (lim *Limits) whole(r Reason, d deadline) time.Duration {
	if h := &lim.Heartbeat; r == HeartbeatTimeout {
		return h.Interval + time.Duration(h.MaxMissed)*h.Retry
	}
	return d.limit
}

// needsServer reports whether a peer can keep a limit only while the server hears and answers it.
func (lim *Limits) needsServer(r Reason, f *Facts) bool {
	switch r {
	case WriteIdle, MaxAge, Drained:
		return false
	case OverLimit:
		return !lim.overHard(f)
	case HeartbeatTimeout: // a ping does no harm
		return f.Missed >= lim.Heartbeat.MaxMissed
	default:
		return true
	}
}

// needsLoop reports whether a peer can keep a limit only while its event loop runs.
func needsLoop(r Reason) bool {
	switch r {
	case NoHandshake, WriteStall, OverLimit, BelowMinRate:
		return true
	default:
		return false
	}
}

// NeedLoop reports whether any of the limits needs the event loop, see [Away].
func (lim *Limits) NeedLoop() bool {
	return lim.Handshake > 0 || lim.Stall > 0 || lim.Output.Soft > 0 || lim.Rate.BytesPerSecond > 0
}

// act returns the action that a passed deadline requires.
func (lim *Limits) act(r Reason, f *Facts) Act {
	switch {
	case IsIdle(r):
		return Raise
	case r == HeartbeatTimeout && f.Missed < lim.Heartbeat.MaxMissed:
		return Ping
	case r == MaxAge && !f.Leaving && lim.AgeGrace > 0:
		return Farewell
	default:
		return End
	}
}

// first reports whether an idle event would be the first since the last activity.
func (lim *Limits) first(r Reason, f *Facts) bool {
	return f.active(r).To > f.Noticed[r-1].Add(-lim.Tick) // Noticed is rounded up to the tick
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

// Report returns the figures behind a verdict with the act Raise, Farewell or End.
func (lim *Limits) Report(v Verdict, f *Facts, now mono.Time) Report {
	p := Report{Late: lim.late(v, f, now)}
	switch v.Reason {
	case ReadIdle, WriteIdle, AllIdle:
		lim.reportIdle(&p, v, f, now)
	case NoFirstByte:
		p.Limit, p.Lasted = lim.FirstByte, now.Sub(f.Opened.To)
	case NoHandshake:
		p.Limit, p.Lasted = lim.Handshake, now.Sub(f.Opened.To)
	case WriteStall:
		p.Limit, p.Lasted = lim.Stall, now.Sub(f.StalledSince)
	case OverLimit:
		p.Bytes = f.Output
		if lim.overHard(f) { // the check has just found it
			p.Late, p.Least = 0, lim.Output.Hard
			break
		}
		p.Limit, p.Lasted, p.Least = lim.Output.SoftFor, now.Sub(f.OverSince), lim.Output.Soft
	case BelowMinRate:
		p.Limit, p.Lasted, p.Bytes, p.Least = lim.Rate.Window, now.Sub(f.RatedSince), f.Taken, lim.leastInWindow()
	case HeartbeatTimeout:
		lim.reportNoAnswer(&p, f, now)
	case MaxAge:
		p.Limit, p.Lasted = lim.Age, now.Sub(f.Opened.To)
	case Drained:
		p.Lasted = now.Sub(f.known(ReadIdle))
	}
	return p
}

func (lim *Limits) reportIdle(p *Report, v Verdict, f *Facts, now mono.Time) {
	known := f.known(v.Reason)
	p.First, p.Limit, p.Lasted = lim.first(v.Reason, f), lim.IdleLimit(v.Reason), now.Sub(known)
	// The deadline counts from the upper bound of the last activity.
	if p.First && p.Late == now.Sub(v.Due) {
		p.Late += f.active(v.Reason).To.Sub(known)
	}
}

func (lim *Limits) reportNoAnswer(p *Report, f *Facts, now mono.Time) {
	h := &lim.Heartbeat
	p.Limit = h.Interval + time.Duration(f.Missed)*h.Retry
	p.Lasted = now.Sub(f.known(ReadIdle))
	if h.PongsOnly { // the first ping came an interval after the last pong
		firstPing := f.LastPing.Add(-time.Duration(f.Missed-1) * h.Retry)
		p.Lasted = now.Sub(firstPing) + h.Interval + Share(h.Interval, h.Jitter*f.Random)
	}
}

// late returns the time since the deadline of a verdict. If a change of the limits has brought the
// deadline forward into the past, it counts from the change.
func (lim *Limits) late(v Verdict, f *Facts, now mono.Time) time.Duration {
	due := v.Due
	if lim.Previous != nil {
		due = max(due, min(lim.Since, lim.Previous.deadline(v.Reason, f).due))
	}
	return now.Sub(due)
}
