package watch

import (
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// Outages are the times in which the server, or the event loop of a Shard alone, could not hear the
// peers. Not safe for concurrent use.
type Outages struct {
	watcher *Watcher
	count   func(*outage.Count) // takes part in a Count of the Monitor

	followed *outage.State   // the findings of the Monitor in away
	stalls   verdict.Outages // of the event loop alone
	away     verdict.Away    // both
	lastRan  mono.Time       // the end of the last task of the event loop
}

// AddStall records a time in which the event loop was blocked. The time begins after the last task:
// two stalls with a task between them are two. Otherwise a loop that is always busy would never
// close a dead connection.
func (o *Outages) AddStall(from, to mono.Time) {
	if from = max(from, o.lastRan); from >= to {
		return
	}
	stall := verdict.Outage{From: from, To: to, Length: to.Sub(from)}
	o.stalls = o.stalls.Add(stall, from.Add(-2*o.watcher.Rule().Memory))
	o.combine()
}

// Ran says that a task of the event loop has ended.
func (o *Outages) Ran(at mono.Time) { o.lastRan = at + 1 }

// Follow takes over a new state of the Monitor, and takes part in its Count.
func (o *Outages) Follow(state *outage.State) {
	if state == o.followed {
		return
	}
	o.followed = state
	o.combine()
	if state.Count != nil {
		o.count(state.Count)
	}
}

// combine joins the outages of the server and the stalls of the event loop.
func (o *Outages) combine() {
	o.away = verdict.NewAway(o.followed.Server, o.followed.Silent)
	for _, stall := range o.stalls {
		o.away.Loop = o.away.Loop.Add(stall, 0)
	}
}

// At returns the outages until now. If the process was stopped during the task, the Monitor may not
// have recorded it yet: the driver has just moved the clock, or has not moved it yet.
func (o *Outages) At(now mono.Time) *verdict.Away {
	from, to := o.watcher.Clock.LastMove()
	// The Monitor records a move before the next one, so it knows all moves before the last.
	o.Follow(o.watcher.Monitor.State())
	o.away.Holds = o.followed.Holds(now)
	away, rule := &o.away, o.watcher.Rule()
	moves := [...]verdict.Outage{
		{From: from, To: to, Length: to.Sub(from)}, {From: to, To: now, Length: now.Sub(to)},
	}
	for _, gap := range moves {
		if rule.IsGap(gap.From, gap.To) {
			longer := *away
			longer.Server, longer.All, longer.Loop = away.Server.Add(gap, 0), away.All.Add(gap, 0), away.Loop.Add(gap, 0)
			away = &longer
		}
	}
	return away
}
