package idle

import (
	"context"
	"time"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

const (
	// taskTime bounds one task on a loop, so that the living are served in between: a close costs
	// about 10 µs.
	taskTime = 500 * time.Microsecond
	// maxTaskTime bounds a task of a loop that is far behind.
	maxTaskTime = time.Millisecond
	// behindPerTask is the part of its delay for which one task of a loop runs that is behind.
	behindPerTask = 64
	// adaptStep is how many connections are brought in line with new settings between two readings of
	// the clock.
	adaptStep = 32
	// stallMoves is how many moves of the clock there are during a handler that is an outage.
	stallMoves = 3
)

// run is the task: it judges what is due, for a bounded time.
func (l *loop) run(context.Context) error {
	l.stop = nil
	entered := l.clock.Stamp()
	began := l.clock.Elapsed()
	if set := l.reaper.settings.Load(); set != l.set {
		l.follow(set)
	}
	l.followOutages(l.reaper.monitor.State())
	l.noteLateTask(began)
	end := began + l.budget()
	spent := func() bool { return l.stop != nil || l.clock.Elapsed() >= end }
	half := began + (end-began)/2
	for l.adapted < l.toAdapt && l.stop == nil && l.clock.Elapsed() < half {
		l.adaptSome(adaptStep)
	}
	sweeps := l.sweepOutput(func() bool { return l.stop != nil || l.clock.Elapsed() >= half })
	l.shed(spent)
	more := true
	for more && !spent() { // one at a time: a handler may take a millisecond for each
		_, more = l.wheel.Advance(l.clock.Read(), 1, l.expire)
	}
	l.counters.Behind = 0
	if due := l.wheelDue(); more && due != never {
		l.counters.Behind = max(l.clock.Elapsed()-due, 0)
	}
	l.noteStall(entered)
	l.publish(l.clock.Stamp())
	l.setDue(l.nextDue())
	more = more || sweeps || l.adapted < l.toAdapt
	l.ran = l.clock.Elapsed() + 1
	if !more {
		l.version.Store(l.set.version)
	}
	l.posted.Store(false) // from here on the driver may post the next
	if more {
		l.reaper.continueSoon()
	}
	return l.stop
}

// budget returns how long a task may run. The further the loop is behind, the longer: closing the
// dead and serving the living share the loop.
func (l *loop) budget() time.Duration {
	return max(l.reaper.taskTime, min(l.counters.Behind/behindPerTask, maxTaskTime))
}

// follow takes other settings. Connections that are watched already are judged by them once ask has
// come to them.
func (l *loop) follow(set *settings) {
	if set == l.set {
		return
	}
	if l.adapted >= l.toAdapt { // otherwise some connections do not follow the last ones yet
		l.previous = l.set
	}
	l.set, l.isPong, l.hard = set, set.cfg.Heartbeat.IsPong, set.cfg.OutputLimit.Hard
	l.resetSweep()
	if l.adapted, l.toAdapt = 0, l.states.Len(); l.open == 0 {
		l.toAdapt = 0
		l.version.Store(set.version)
	}
}

// adaptSome sees to it that the next connections are judged by the settings of now, also those whose
// deadlines are earlier by them.
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

// noteLateTask takes note of the time in which this loop was blocked, if the task was posted long
// ago, and the process was not stopped since then. The loop may have been blocked since it was last
// seen to run.
func (l *loop) noteLateTask(now time.Duration) {
	posted := time.Duration(l.postedAt.Load())
	if posted == 0 || !outage.IsGap(posted, now, l.clock.Tick()) {
		return
	}
	if running := now - l.awayAt(now).Server.Within(posted, now); outage.IsGap(posted, running, l.clock.Tick()) {
		l.addStall(min(posted, l.clock.After(l.publishedAt)), now)
	}
}

// noteStall takes note of the time since a stamp, in which a handler ran, if it was long.
func (l *loop) noteStall(entered int64) {
	if l.clock.Stamp()-entered < stallMoves {
		return
	}
	if from, to := l.clock.After(entered), l.clock.Elapsed(); outage.IsGap(from, to, l.clock.Tick()) {
		l.addStall(from, to)
	}
}

// addStall keeps a time in which this loop was blocked. It does not reach back to before a task that
// ran: two stalls with a task between them are not one, or a loop that is always busy would keep a
// dead connection.
func (l *loop) addStall(from, to time.Duration) {
	if from = max(from, l.ran); from >= to || !l.set.limits.NeedLoop() {
		return
	}
	l.stalls = l.stalls.Add(verdict.Outage{From: from, To: to, Length: to - from}, from-2*l.set.rule.Memory)
	l.combine()
}

// followOutages takes note of what the Monitor has found out, and takes part in its Count.
func (l *loop) followOutages(found *outage.State) {
	if found == l.found {
		return
	}
	l.found = found
	l.followed.Store(found)
	l.combine()
	if found.Count != nil {
		l.countBusy(found.Count)
	}
}

// combine makes Away of the outages of the server and those of the loop.
func (l *loop) combine() {
	l.away = verdict.Away{Server: l.found.Server, Silent: l.found.Silent, Loop: l.found.Server}
	for _, o := range l.stalls {
		l.away.Loop = l.away.Loop.Add(o, 0)
	}
}

// awayAt returns the outages as of now. The process may have been stopped while the task runs. The
// driver may have moved the clock since then, without the Monitor having taken note of it, or may
// not have moved it yet.
func (l *loop) awayAt(now time.Duration) *verdict.Away {
	from, to := l.clock.LastMove()
	// The Monitor takes note of a move before the next one. So it knows of all moves before the last.
	l.followOutages(l.reaper.monitor.State())
	l.away.HeldSince = l.found.HeldSince()
	away, tick := &l.away, l.clock.Tick()
	for _, gap := range [...]verdict.Outage{{From: from, To: to, Length: to - from}, {From: to, To: now, Length: now - to}} {
		if outage.IsGap(gap.From, gap.To, tick) {
			longer := *away
			longer.Server, longer.Loop = away.Server.Add(gap, 0), away.Loop.Add(gap, 0)
			away = &longer
		}
	}
	return away
}

// countBusy counts the connections that were heard last in a period, for all that were open before
// it. It stops when there are enough.
func (l *loop) countBusy(c *outage.Count) {
	n, enough, now := 0, c.Enough(), l.clock.Stamp()
	elapsed := l.clock.Elapsed()
	if l.clock.Before(l.heardAt.Load(), elapsed) > c.To {
		return // peers were heard since: this loop was blocked
	}
	l.scanAt = l.table.Scan(l.scanAt, shedScan, func(id uint32, r conntable.Record) {
		if n >= enough {
			return
		}
		stamp := coarse.Unwrap(r.Heard, now)
		if !l.clock.Remembers(stamp) || l.clock.After(stamp) < c.From || l.clock.After(stamp) > c.To {
			return
		}
		if l.clock.Unpack(l.states.At(id).instants[atOpened], elapsed) <= c.From {
			n++
		}
	})
	c.Add(n)
}
