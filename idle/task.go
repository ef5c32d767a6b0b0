package idle

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
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

// A taskState tells the driver whether a loop needs a task.
type taskState struct {
	due  mono.Time // when the next task is needed; owned by the loop goroutine
	more func()    // asks the driver for another task; immutable

	// Atomic.
	dueAt    atomic.Int64                 // copy of due
	followed atomic.Pointer[outage.State] // the findings of the Monitor that the loop knows
	version  atomic.Int64                 // of the settings that the loop follows
	posted   atomic.Bool                  // a task is on its way
	postedAt atomic.Int64                 // the time at which that task was posted
}

func (t *taskState) setDue(due mono.Time) {
	t.due = due
	t.dueAt.Store(int64(due))
}

// isNeeded reports whether something is due, or there is news to follow.
func (t *taskState) isNeeded(now mono.Time, version int64, state *outage.State) bool {
	return t.dueAt.Load() <= int64(now) || t.version.Load() != version || state.Count != nil && t.followed.Load() != state
}

// run is the task. For a bounded time it looks at the connections that are due.
func (l *loop) run(context.Context) error {
	l.closing = closing{}
	entered := l.clock.Stamp()
	began := l.clock.Elapsed()
	l.follow()
	state := l.Watcher.Monitor.State()
	l.countSome()
	l.Outages.Follow(state)
	l.task.followed.Store(state)
	l.noteLateTask(began)
	// A loop that is further behind gets a longer task: dead and living connections share the loop.
	end := began.Add(max(taskTime, min(l.Counters.LoopDelay/behindPerTask, maxTaskTime)))
	spent := func() bool { return l.stop != nil || l.clock.Elapsed() >= end }
	half := began.Add(end.Sub(began) / 2)
	spentHalf := func() bool { return l.clock.Elapsed() >= half }
	for !l.IsAdapted() && !spentHalf() {
		l.AdaptSome(adaptStep)
	}
	for l.Groups.Step() && !spentHalf() {
	}
	l.sweepOutput(spentHalf)
	marker{l}.compareAll(spentHalf)
	l.shedOutput(nil)
	l.shed(spent)
	l.noteStall(entered, l.clock.Stamp())
	l.advance(spent)
	l.Counters.LoopDelay = 0
	if due := l.nextLook(); due <= l.clock.Read() {
		l.Counters.LoopDelay = l.clock.Elapsed().Sub(due)
	}
	l.publish(l.clock.Stamp())
	due := l.nextDue()
	l.task.setDue(due)
	l.Outages.Ran(l.clock.Elapsed())
	l.task.posted.Store(false) // from here on the driver may post the next task
	if due <= l.clock.Read() {
		l.task.more()
	}
	return l.stop
}

// advance looks at the connections and calls the timers that are due, in turns, until its time is
// spent.
func (l *loop) advance(spent func() bool) {
	for more := true; more && !spent(); { // one at a time: each handler may take a millisecond
		entered := l.clock.Stamp()
		looks := l.Schedule.Advance(1)
		timers := l.timers.Advance(l.clock.Read())
		l.noteStall(entered, l.clock.Stamp()) // the next one may be late by it
		more = looks || timers
	}
}

// follow switches to the settings in force. Each watched connection is judged by them after
// AdaptSome.
func (l *loop) follow() {
	if l.Follow(l.Watcher.Settings()) {
		l.followed()
	}
}

// followed takes over what the loop needs of other settings.
func (l *loop) followed() {
	l.isPong = nil
	if h := l.config().Heartbeat; h.Interval > 0 {
		l.isPong = h.IsPong
	}
	l.outputs.follow(l.Set, l.clock.Elapsed())
	l.task.version.Store(l.Set.Version)
}

// noteLateTask records that this loop was blocked, if the task was posted long ago and the process
// was not stopped since then. The loop may have been blocked since it last published its counters.
func (l *loop) noteLateTask(now mono.Time) {
	posted, rule := mono.Time(l.task.postedAt.Load()), l.Watcher.Rule()
	if !rule.IsGap(posted, now) {
		return
	}
	running := now.Add(-l.Outages.At(now).Server.Within(posted, now))
	if rule.IsGap(posted, running) {
		l.Outages.AddStall(min(posted, l.clock.After(l.published.at)), now)
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
	if l.Watcher.Rule().IsGap(from, to) {
		l.Outages.AddStall(from, to)
	}
}
