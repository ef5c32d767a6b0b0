package idle

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// taskTime is the length of a task on a loop. Between tasks the loop serves its connections. To
	// close a connection takes about 10 µs.
	taskTime = 500 * time.Microsecond
	// maxTaskTime is the length of a task on a loop that is far behind.
	maxTaskTime = time.Millisecond
	// behindPerTask divides the delay of a loop. The quotient is the length of its next task.
	behindPerTask = 64
	// adaptStep is the number of connections that are adapted between two readings of the clock.
	adaptStep = 32
	// stallMoves is the least number of moves of the clock during a handler that blocks its loop.
	stallMoves = 3
)

// run is the task. For a bounded time it judges the connections that are due.
func (l *loop) run(context.Context) error {
	l.stop, l.reaping, l.reapReason = nil, nil, nil
	entered := l.clock.Stamp()
	began := l.clock.Elapsed()
	if set := l.reaper.settings.Load(); set != l.set {
		l.follow(set)
	}
	l.followOutages(l.reaper.monitor.State())
	l.noteLateTask(began)
	end := began.Add(l.budget())
	spent := func() bool { return l.stop != nil || l.clock.Elapsed() >= end }
	half := began.Add(end.Sub(began) / 2)
	for l.adapted < l.toAdapt && l.stop == nil && l.clock.Elapsed() < half {
		l.adaptSome(adaptStep)
	}
	sweeps := l.sweepOutput(func() bool { return l.stop != nil || l.clock.Elapsed() >= half })
	l.shedOutput(nil)
	l.shed(spent)
	more := l.advance(spent)
	l.counters.Behind = 0
	if due := l.wheelDue(); more && due != never {
		l.counters.Behind = max(l.clock.Elapsed().Sub(due), 0)
	}
	l.noteStall(entered, l.clock.Stamp())
	l.publish(l.clock.Stamp())
	l.setDue(l.nextDue())
	more = more || sweeps || l.adapted < l.toAdapt || l.mustShedOutput()
	l.lastRan = l.clock.Elapsed() + 1
	if !more {
		l.version.Store(l.set.version)
	}
	l.posted.Store(false) // from here on the driver may post the next task
	if more {
		l.reaper.continueSoon()
	}
	return l.stop
}

// advance judges the connections and calls the timers that are due, in turns, until its time is
// spent. It reports whether there may be more.
func (l *loop) advance(spent func() bool) (more bool) {
	more = true
	for more && !spent() { // one at a time: each handler may take a millisecond
		_, verdicts := l.wheel.Advance(time.Duration(l.clock.Read()), 1, l.expire)
		timers := l.timers.Advance(l.clock.Read())
		more = verdicts || timers
	}
	return more
}

// budget returns how long a task may run. It is longer for a loop that is further behind: dead and
// living connections share the loop.
func (l *loop) budget() time.Duration {
	return max(l.reaper.taskTime, min(l.counters.Behind/behindPerTask, maxTaskTime))
}

// follow switches to other settings. Each watched connection is judged by them after adapt.
func (l *loop) follow(set *settings) {
	if set == l.set {
		return
	}
	if l.adapted >= l.toAdapt { // otherwise some connections are not adapted to the last ones yet
		l.previous = l.set
	}
	l.set, l.isPong = set, set.cfg.Heartbeat.IsPong
	l.hardLimit, l.totalLimit = set.cfg.OutputLimit.Hard, max(set.cfg.OutputLimit.Total, 0)
	if l.totalLimit == 0 {
		l.forgetOutputs()
	}
	l.resetSweep()
	if l.adapted, l.toAdapt = 0, l.states.Len(); l.open == 0 {
		l.toAdapt = 0
		l.version.Store(set.version)
	}
}

// adaptSome adapts the next n states to the present settings, and moves deadlines that are sooner
// now.
func (l *loop) adaptSome(n int) {
	for ; n > 0 && l.adapted < l.toAdapt; n-- {
		id := l.adapted
		l.adapted++
		s := l.states.At(id)
		if !s.used() {
			continue
		}
		l.adapt(s)
		l.rearm(id, s)
	}
}

// noteLateTask records that this loop was blocked, if the task was posted long ago and the process
// was not stopped since then. The loop may have been blocked since it last published its counters.
func (l *loop) noteLateTask(now mono.Time) {
	posted := mono.Time(l.postedAt.Load())
	if posted == 0 || !l.set.rule.IsGap(posted, now) {
		return
	}
	running := now.Add(-l.outagesAt(now).Server.Within(posted, now))
	if l.set.rule.IsGap(posted, running) {
		l.addStall(min(posted, l.clock.After(l.publishedAt)), now)
	}
}

// noteStall records that a handler blocked this loop, if it ran for long since the given stamp.
// Usually it did not, and the call is inlined.
func (l *loop) noteStall(entered, now mono.Stamp) {
	if now-entered >= stallMoves {
		l.addStallSince(entered)
	}
}

func (l *loop) addStallSince(entered mono.Stamp) {
	from, to := l.clock.After(entered), l.clock.Elapsed()
	if l.set.rule.IsGap(from, to) {
		l.addStall(from, to)
	}
}

// addStall records a time in which this loop was blocked. The time begins after the last task: two
// stalls with a task between them are two. Otherwise a loop that is always busy would never close a
// dead connection.
func (l *loop) addStall(from, to mono.Time) {
	if from = max(from, l.lastRan); from >= to || !l.set.limits.NeedLoop() {
		return
	}
	stall := verdict.Outage{From: from, To: to, Length: to.Sub(from)}
	l.stalls = l.stalls.Add(stall, from.Add(-2*l.set.rule.Memory))
	l.combineOutages()
}

// followOutages takes over a new state of the Monitor, and takes part in its Count.
func (l *loop) followOutages(state *outage.State) {
	if state == l.monitorState {
		return
	}
	l.monitorState = state
	l.followedState.Store(state)
	l.combineOutages()
	if state.Count != nil {
		l.countBusy(state.Count)
	}
}

// combineOutages joins the outages of the server and the stalls of this loop.
func (l *loop) combineOutages() {
	server := l.monitorState.Server
	l.outages = verdict.Away{Server: server, Silent: l.monitorState.Silent, Loop: server}
	for _, o := range l.stalls {
		l.outages.Loop = l.outages.Loop.Add(o, 0)
	}
}

// outagesAt returns the outages until now. If the process was stopped during the task, the Monitor
// may not have recorded it yet: the driver has just moved the clock, or has not moved it yet.
func (l *loop) outagesAt(now mono.Time) *verdict.Away {
	from, to := l.clock.LastMove()
	// The Monitor records a move before the next one, so it knows all moves before the last.
	l.followOutages(l.reaper.monitor.State())
	l.outages.HeldSince = l.monitorState.HeldSince()
	away := &l.outages
	moves := [...]verdict.Outage{
		{From: from, To: to, Length: to.Sub(from)}, {From: to, To: now, Length: now.Sub(to)},
	}
	for _, gap := range moves {
		if l.set.rule.IsGap(gap.From, gap.To) {
			longer := *away
			longer.Server, longer.Loop = away.Server.Add(gap, 0), away.Loop.Add(gap, 0)
			away = &longer
		}
	}
	return away
}

// countBusy counts the connections that were open before a period and heard last in it. It stops
// when there are enough.
func (l *loop) countBusy(c *outage.Count) {
	n, enough, now := 0, c.Enough(), l.clock.Stamp()
	elapsed := l.clock.Elapsed()
	if l.clock.Before(mono.Stamp(l.heardAt.Load()), elapsed) > c.To {
		return // peers were heard after the period: this loop was blocked
	}
	l.scanAt = l.table.Scan(l.scanAt, shedScan, func(id uint32, r conntable.Record) {
		if n >= enough {
			return
		}
		stamp := r.Heard.Unwrap(now)
		if !l.clock.Remembers(stamp) || l.clock.After(stamp) < c.From || l.clock.After(stamp) > c.To {
			return
		}
		if l.clock.Unpack(l.states.At(id).Opened(), elapsed) <= c.From {
			n++
		}
	})
	c.Add(n)
}
