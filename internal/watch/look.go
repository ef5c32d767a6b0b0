package watch

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/silence"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
	"github.com/idlewheel/idlewheel/wheel"
)

const (
	// closeRetry is the time after which a connection is looked at again if it should be closed and
	// is not.
	closeRetry = time.Second
	// verdictsPerLook bounds the verdicts that a look carries out. Each reason needs one.
	verdictsPerLook = int(verdict.Last) + 1
)

// A looker has the steps of a look of its Shard.
type looker[C any] struct{ *Shard[C] }

// Look looks at a connection when its deadline in the wheel has passed.
func (s *Shard[C]) Look(timer wheel.Handle, id uint32) {
	if s.Halted {
		s.Schedule.at(timer, s.clock.Read().Add(s.clock.Tick()))
		return
	}
	c := s.conns.at(id)
	if next, open := (looker[C]{s}).lookAt(id, c); open {
		s.Schedule.at(c.timer, next)
	}
}

// lookAt looks at a connection. It returns the time of the next look, or false if the connection is
// closed.
func (s looker[C]) lookAt(id uint32, c *Conn[C]) (next mono.Time, open bool) {
	now := s.clock.Elapsed()
	c.KeepInReach(s.clock, s.port.Record(c), now)
	if e := s.Ends.Of(id); e != nil {
		return s.lookAtEnded(id, c, e)
	}
	seemsDead := false
	if !s.asks {
		s.adaptNow(id, c)
		s.facts = s.Facts(id, c, now)
		v := s.judge(id, c, &s.facts, s.Outages.At(now), now)
		if v.Act == verdict.Wait && !v.PutOff && !(c.Judged() && s.LimitsOf(c).needsKernel(&s.facts, now)) {
			s.Counters.countStay(v)
			return v.Next, true
		}
		seemsDead = v.Act != verdict.Wait
	}
	return s.ask(id, c, seemsDead)
}

// lookAtEnded looks at a connection that should be closed by now.
func (s looker[C]) lookAtEnded(id uint32, c *Conn[C], e *End) (next mono.Time, open bool) {
	now := s.clock.Elapsed()
	if s.finder == nil {
		return now.Add(s.LimitsOf(c).Horizon), true
	}
	if next, open = s.finder.LookAtEnded(id, c, e, now); !open {
		s.finder.Drop(id, c)
	}
	return next, open
}

// needsKernel reports whether the kernel must be asked about a connection before any deadline has
// passed: its output waits, or a window of the minimum rate begins.
func (lim *Limits) needsKernel(f *verdict.Facts, now mono.Time) bool {
	return lim.polled || f.OutputWaits() && lim.PollOutput() > 0 || f.RatedSince != 0 && !f.Counting && f.RatedSince <= now
}

// ask asks the kernel about a connection, judges it, and carries out the verdicts.
func (s looker[C]) ask(id uint32, c *Conn[C], seemsDead bool) (next mono.Time, open bool) {
	opened, ev, f := c.Opened(), &s.evidence, &s.facts
	var now mono.Time
	for n := range verdictsPerLook {
		if n == 0 || !s.asks { // the handler may have written, and time has passed
			now, open = s.askKernel(id, c)
			s.catchUp()
		}
		switch {
		case !open:
			s.finder.Drop(id, c)
			return 0, false
		case ev.Found == verdict.Ended: // the event loop will report it, or this is repeated
			return now.Add(max(closeRetry, s.clock.Tick())), true
		}
		if n > 0 || s.asks {
			s.adaptNow(id, c)
			*f = s.Facts(id, c, now)
		}
		s.learn(id, c, f, now, seemsDead)
		seemsDead = false
		asked := now.Add(-ev.Took) // the answer was true before the question ended, and may be old by now
		v := s.judge(id, c, f, s.Outages.At(asked), asked)
		if v.Act == verdict.Wait {
			s.Counters.countStay(v)
			return s.nextLook(c, v, now), true
		}
		s.carryOut(id, c, v, f, now)
		if next, open, done := s.isDone(id, c, opened, v.Act, now); done {
			return next, open
		}
	}
	return s.clock.Elapsed().Add(s.clock.Tick()), true
}

// isDone reports whether a look ends after a verdict was carried out. It returns the time of the
// next look then, or false if the connection is closed.
func (s looker[C]) isDone(
	id uint32, c *Conn[C], opened mono.Packed, act verdict.Act, now mono.Time,
) (next mono.Time, open, done bool) {
	switch e := s.Ends.Of(id); {
	case c.Opened() != opened:
		return 0, false, true
	case e != nil:
		next, open = s.lookAtEnded(id, c, e)
		return next, open, true
	case act == verdict.End && !c.Is(connstate.Observed) || s.Halted: // it could not be closed
		return s.clock.Elapsed().Add(max(closeRetry, s.clock.Tick())), true, true
	case act == verdict.Raise && s.asks && s.Set.ObserveOnly: // OnIdle is called after the look
		return now, true, true
	}
	return 0, true, false
}

// questions is how often the kernel is asked until its answer is exact.
const questions = 3

// askKernel asks the kernel about a connection. It returns the time after the answer. If the
// process was stopped meanwhile, it is not known how old the answer is. A front end that sees no
// messages asks again then: otherwise a byte from before the stop could count as one of the stop.
// Segments out of order count once, although their bytes wait for a lost one: acknowledgements that
// come later prove only that the kernel of the peer lives.
func (s looker[C]) askKernel(id uint32, c *Conn[C]) (now mono.Time, open bool) {
	for range questions {
		before := s.clock.Elapsed()
		open = s.port.Ask(c, &s.evidence)
		now = s.clock.Elapsed()
		if s.evidence.Took = now.Sub(before); !s.asks || s.evidence.Took < s.clock.Tick() {
			break
		}
	}
	if s.evidence.Early == s.early[id] {
		s.evidence.Early = 0
	}
	if s.asks && s.evidence.Found == verdict.Ended { // until the server reads that, limits apply
		s.evidence.Found = verdict.Nothing
	}
	return now, open
}

// HasEnded asks the kernel whether a connection has ended, so that its event loop will report it.
func (s *Shard[C]) HasEnded(id uint32, c *Conn[C]) bool {
	looker[C]{s}.askKernel(id, c)
	return s.evidence.Found == verdict.Ended
}

// Poll asks the kernel about the output of a connection. If output waits, the connection is looked
// at more often from now on.
func (s *Shard[C]) Poll(id uint32, c *Conn[C]) {
	now, open := looker[C]{s}.askKernel(id, c)
	if !open || s.evidence.Found == verdict.Ended {
		return
	}
	s.facts = s.Facts(id, c, now)
	looker[C]{s}.learn(id, c, &s.facts, now, false)
	if s.facts.OutputWaits() {
		s.Rearm(id, c)
	}
}

// learn updates the facts with the kernel's answer, and keeps them.
func (s looker[C]) learn(id uint32, c *Conn[C], f *verdict.Facts, now mono.Time, seemsDead bool) {
	ev, r := &s.evidence, s.port.Record(c)
	if ev.Early != 0 {
		s.early[id] = ev.Early
	}
	heard := c.State.Learn(s.clock, r, &s.LimitsOf(c).Limits, f, ev, now)
	if f.Large != s.Large[id] {
		s.Large.keep(id, f.Large)
	}
	if heard && seemsDead {
		s.Counters.SparedUnread++
	}
	// A byte that came within a step of the kernel's clock after the last known one has no date of
	// its own. It counts at its latest possible instant if no event has told of it.
	if latest := now.Add(ev.Step - ev.Silent); s.asks && ev.Dated && ev.Received > 0 && latest > f.Heard.To {
		f.Heard.To = latest
		r.Heard = s.clock.StampAt(latest).Short()
	}
	if s.asks {
		if heard {
			s.countLiving(c, c.longest.atLook)
		}
		c.longest.atLook = silence.Bucket(s.silentFor(id, c))
	}
	s.port.Learned(c, heard, ev, now)
}

// nextLook returns the time of the next look at a connection that stays. If a front end does not
// see messages, a held connection is looked at as often as others, so that a Release need not move
// its deadline forward, and the next ping may come sooner because the last one was answered.
func (s looker[C]) nextLook(c *Conn[C], v verdict.Verdict, now mono.Time) mono.Time {
	next := v.Next
	if !s.asks {
		return next
	}
	lim := s.LimitsOf(c)
	if c.Held() {
		for _, timeout := range [...]time.Duration{lim.Read, lim.Write, lim.All} {
			if timeout > 0 {
				next = min(next, now.Add(timeout))
			}
		}
	}
	if interval := lim.Heartbeat.Interval; interval > 0 {
		next = min(next, now.Add(interval))
	}
	return max(next, now+1)
}

// judge returns the verdict on a connection. It waits if the connection is not to be judged.
func (s looker[C]) judge(id uint32, c *Conn[C], f *verdict.Facts, away *verdict.Away, now mono.Time) verdict.Verdict {
	lim := s.LimitsOf(c)
	if !s.IsJudged(id, c) {
		return verdict.Verdict{Next: now.Add(lim.Horizon)}
	}
	return lim.Judge(f, s.Groups.awayOf(id, c, away, now), now)
}

// IsJudged reports whether limits apply to a connection.
func (s *Shard[C]) IsJudged(id uint32, c *Conn[C]) bool { return c.Judged() && s.Ends.Of(id) == nil }

// raise lets OnIdle decide about an idle connection. It reports whether the connection is to be
// closed. Without OnIdle that is so, unless the connection is write idle.
func (s looker[C]) raise(id uint32, c *Conn[C], ev reap.Event, reason *reap.Error) (end bool) {
	if s.Set.Decides {
		return s.port.Raise(id, c, ev, reason)
	}
	s.Counters.Events[ev.Reason]++
	return ev.Reason != reap.WriteIdle
}

func (s looker[C]) carryOut(id uint32, c *Conn[C], v verdict.Verdict, f *verdict.Facts, now mono.Time) {
	lim := s.LimitsOf(c)
	report := lim.Report(v, f, now)
	reason := &reap.Error{
		Package: s.Watcher.form.Package, Reason: v.Reason, Limit: report.Limit, Lasted: report.Lasted, Late: report.Late,
		Bytes: report.Bytes, LimitBytes: report.Least,
	}
	if v.Reason == reap.HeartbeatTimeout && f.Missed > 0 { // the last ping was not answered
		s.Counters.Missed++
	}
	switch v.Act {
	case verdict.Raise:
		c.Notice(s.clock, v.Reason, now)
		opened := c.Opened()
		event := reap.Event{Reason: v.Reason, First: report.First, Timeout: report.Limit, Idle: report.Lasted, Late: report.Late}
		if s.raise(id, c, event, reason) && c.Opened() == opened { // the handler may have closed it
			s.end(id, c, reason)
		}
	case verdict.Ping:
		c.Ping(s.clock, f, now)
		if s.port.Ping(id, c) {
			s.Counters.Pings++
		}
	case verdict.Farewell:
		if s.Set.ObserveOnly {
			s.end(id, c, reason)
			return
		}
		c.Leave(s.clock, now)
		reason.Grace = lim.AgeGrace
		s.port.Farewell(c, reason)
	case verdict.End:
		s.end(id, c, reason)
	}
}
