package idle

import (
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// outputs are what a loop knows of the output that waits in gnet's buffers. Except where otherwise
// noted, the loop goroutine owns all of it.
type outputs struct {
	sweep
	hardLimit  int           // OutputLimit.Hard
	totalLimit int           // OutputLimit.Total, 0 if there is none
	waiting    outputHeap    // of the connections, as last seen; empty without totalLimit
	ownStall   time.Duration // the shortest WriteStallTimeout that SetLimits has given, 0 if none
	marks      marks

	// Immutable.
	all          *atomic.Int64 // bytes that wait for all loops
	largestOfAll func() int64  // the largest output of a connection of any loop

	mostWaiting atomic.Int64 // copy of the largest of waiting; for all goroutines
}

// set records that n bytes of output of a connection wait.
func (o *outputs) set(id uint32, n int) {
	if o.totalLimit == 0 {
		return
	}
	if grown := o.waiting.set(id, n); grown != 0 {
		_, most := o.waiting.largest()
		o.mostWaiting.Store(int64(most))
		o.all.Add(int64(grown))
	}
}

func (o *outputs) follow(set *watch.Settings, now mono.Time) {
	limit := set.Front.(*Config).OutputLimit
	o.marks.follow(set.Front.(*Config).OutputMarks)
	o.hardLimit, o.totalLimit = limit.Hard, max(limit.Total, 0)
	if o.totalLimit == 0 {
		o.all.Add(-int64(o.waiting.sum))
		o.mostWaiting.Store(0)
		o.waiting = outputHeap{}
	}
	o.followLimits(set, now)
}

// followLimits adapts the sweeps to the limits of all connections.
func (o *outputs) followLimits(set *watch.Settings, now mono.Time) {
	lim := set.Common.Limits
	lim.Stall = verdict.Shorter(lim.Stall, o.ownStall)
	o.sweep.follow(&lim, o.marks.high > 0, now)
}

// addStall says that a connection has a WriteStallTimeout of its own.
func (o *outputs) addStall(stall time.Duration, set *watch.Settings, now mono.Time) {
	if shortest := verdict.Shorter(o.ownStall, max(stall, 0)); shortest != o.ownStall {
		o.ownStall = shortest
		o.followLimits(set, now)
	}
}

// mustShed reports whether all connections together have more output than OutputLimit.Total, and
// this loop can close some.
func (o *outputs) mustShed() bool {
	return o.totalLimit > 0 && o.all.Load() > int64(o.totalLimit) && len(o.waiting.all) > 0
}

const (
	// outputFree is the part of OutputLimit.Total that is free after connections were closed for
	// it.
	outputFree = 16
	// outputSlack is the part of OutputLimit.Total by which it may be exceeded while the loop with
	// the largest output has not closed connections yet.
	outputSlack = 8
)

// isOver reports whether the loop is to close its connection with the most output, n bytes, after
// it has closed some others. If another loop has a larger one, wake makes the driver wake that
// loop.
func (o *outputs) isOver(n, closed int, wake func()) bool {
	all, total := o.all.Load(), int64(o.totalLimit)
	keep := total
	if closed > 0 {
		keep -= total / outputFree
	}
	switch {
	case n == 0 || all <= keep:
		return false
	case o.largestOfAll() > int64(n):
		wake()
		return all > total+total/outputSlack
	}
	return true
}

// isHigh reports whether more than half of a limit of all output is in use. Then the outputs are
// swept in each tick.
func isHigh(all *atomic.Int64, limit int) bool { return limit > 0 && all.Load() > int64(limit/2) }

// A sweep reads all connections of a loop and finds those with waiting output. No event reports
// output, because other goroutines write too. A connection without output costs one read of the
// buffer of the event loop, and one question to the kernel per WriteStallTimeout. A loop that hears
// nothing is swept less often.
type sweep struct {
	next      uint32        // id of the next connection to sweep
	end       uint32        // id at which the sweep ends
	due       mono.Time     // when the next sweep begins; never if output is not limited
	began     mono.Stamp    // stamp of the last sweep
	beganAt   mono.Time     // when the last sweep began
	quiet     bool          // no peer was heard between the last two sweeps
	polls     bool          // output is limited
	every     time.Duration // between two sweeps
	seldom    time.Duration // between two sweeps of a loop that hears nothing
	stall     time.Duration // the shortest WriteStallTimeout, which has stallPhases phases
	lastPhase uint32        // number of the last phase in which the kernel was asked
	first     uint32        // first phase for which this sweep asks the kernel
	turns     uint32        // number of phases for which this sweep asks the kernel
}

const (
	// sweepStep is the number of connections that are swept between two readings of the clock.
	sweepStep = 64
	// stallPhases is the number of phases of WriteStallTimeout. The id of a connection selects the
	// phase in which the kernel is asked about it.
	stallPhases = 32 // power of two
	// markSweep is the interval of sweeps with OutputMarks, also while a loop hears nothing.
	markSweep = time.Second
)

func (w *sweep) isSweeping() bool { return w.next != w.end }

func (w *sweep) follow(lim *verdict.Limits, marked bool, now mono.Time) {
	w.every, w.seldom = lim.PollOutput(), lim.PollQuiet()
	if w.polls = w.every > 0; marked {
		least := max(markSweep, lim.Tick)
		w.every, w.seldom = verdict.Shorter(w.every, least), verdict.Shorter(w.seldom, least)
	}
	if w.every == 0 {
		*w = sweep{due: never}
		return
	}
	if w.stall != lim.Stall { // the next sweep asks the kernel about all connections
		w.stall = lim.Stall
		w.lastPhase = w.phase(now) - stallPhases
	}
	w.quiet = false
	w.due = min(w.due, w.nextSweep(now))
}

// nextSweep returns the time of the next sweep. All loops sweep at the same time: in a process
// without traffic, waking the Go scheduler costs more than a sweep of thousands of connections.
func (w *sweep) nextSweep(now mono.Time) mono.Time {
	every := w.every
	if w.quiet {
		every = w.seldom
	}
	return now.Truncate(every).Add(every)
}

// wakeUp makes a quiet loop sweep soon. It reports whether it was quiet.
func (w *sweep) wakeUp(elapsed func() mono.Time) (was bool) {
	if was = w.quiet; was {
		w.quiet = false
		w.due = min(w.due, w.nextSweep(elapsed()))
	}
	return was
}

// phase returns the number of the phase of WriteStallTimeout at a time.
func (w *sweep) phase(now mono.Time) uint32 {
	return uint32(time.Duration(now) / max(w.stall/stallPhases, 1))
}

// begin begins a sweep of the connections below a number. A peer was heard last at a stamp.
func (w *sweep) begin(end uint32, heard, stamp mono.Stamp, now mono.Time) {
	w.quiet, w.began = heard < w.began, stamp
	w.next, w.end, w.due, w.beganAt = 0, end, w.nextSweep(now), now
	w.turns = 0
	if w.stall > 0 {
		phase := w.phase(now)
		w.first, w.turns, w.lastPhase = w.lastPhase+1, min(phase-w.lastPhase, stallPhases), phase
	}
}

// asks reports whether this sweep asks the kernel about a connection.
func (w *sweep) asks(id uint32) bool { return (id-w.first)%stallPhases < w.turns }
