package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A sweep reads all connections of a loop and finds those with waiting output. No event reports
// output, because other goroutines write too. A connection without output costs one read of the
// buffer of the event loop, and one question to the kernel per WriteStallTimeout. A loop that hears
// nothing is swept less often.
type sweep struct {
	next      uint32        // id of the next state to sweep
	end       uint32        // id at which the sweep ends
	due       mono.Time     // when the next sweep begins; never if output is not limited
	began     coarse.Stamp  // stamp of the last sweep
	quiet     bool          // no peer was heard between the last two sweeps
	stall     time.Duration // WriteStallTimeout, which has stallPhases phases
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
)

// resetSweep adapts the sweeps to the present settings.
func (l *loop) resetSweep() {
	w, lim := &l.sweep, l.set.limits
	if lim.PollOutput() == 0 {
		*w = sweep{due: never}
		return
	}
	now := l.clock.Elapsed()
	if w.stall != lim.Stall { // the next sweep asks the kernel about all connections
		w.stall = lim.Stall
		w.lastPhase = l.stallPhase(now) - stallPhases
	}
	w.quiet = false
	w.due = min(w.due, l.nextSweep(now))
}

// nextSweep returns the time of the next sweep. All loops sweep at the same time: in a process
// without traffic, waking the Go scheduler costs more than a sweep of thousands of connections.
func (l *loop) nextSweep(now mono.Time) mono.Time {
	every := l.set.limits.PollOutput()
	if l.sweep.quiet {
		every = l.set.limits.PollQuiet()
	}
	return now.Truncate(every).Add(every)
}

// stallPhase returns the number of the phase of WriteStallTimeout at a time.
func (l *loop) stallPhase(now mono.Time) uint32 {
	return uint32(time.Duration(now) / max(l.set.limits.Stall/stallPhases, 1))
}

// beginSweep begins a sweep.
func (l *loop) beginSweep(now mono.Time) {
	w := &l.sweep
	w.quiet, w.began = coarse.Stamp(l.heardAt.Load()) < w.began, l.clock.Stamp()
	w.next, w.end, w.due = 0, l.states.Len(), l.nextSweep(now)
	w.turns = 0
	if l.set.limits.Stall > 0 {
		phase := l.stallPhase(now)
		w.first, w.turns, w.lastPhase = w.lastPhase+1, min(phase-w.lastPhase, stallPhases), phase
	}
}

// sweepOutput begins or continues a sweep until its time is spent. It reports whether there is
// more.
func (l *loop) sweepOutput(spent func() bool) (more bool) {
	w := &l.sweep
	if w.next == w.end {
		now := l.clock.Elapsed()
		if now < w.due {
			return false
		}
		l.beginSweep(now)
	}
	for w.next < w.end {
		if spent() {
			return true
		}
		l.sweepStep(min(w.next+sweepStep, w.end))
	}
	return false
}

// sweepStep sweeps the connections before the given id. Without output it reads only two cache
// lines of a connection, so that the processor fetches several connections at a time.
func (l *loop) sweepStep(end uint32) {
	w := &l.sweep
	for ; w.next < end; w.next++ {
		ask := (w.next-w.first)%stallPhases < w.turns
		if s := l.states.At(w.next); s.used() && (s.conn.OutboundBuffered() > 0 || ask) {
			l.sweepOne(w.next, s)
		}
	}
}

// sweepOne starts the polls of a connection if output waits. The kernel may hold output that has
// left the buffer of the event loop.
func (l *loop) sweepOne(id uint32, s *state) {
	if !s.Judged() || s.Polled() {
		return // not limited, or polled already
	}
	c := s.conn
	if c.OutboundBuffered() == 0 && !l.reaper.kernel.holdsOutput(c.Fd()) {
		return
	}
	ev := &l.evidence
	now := l.askKernel(c)
	if ev.Found == verdict.Ended {
		return
	}
	r, _ := l.table.Find(key(c))
	f := l.facts(r, id, s, now)
	l.learn(r, s, &f, ev, now, false)
	if f.OutputWaits() {
		l.rearm(id, s)
	}
}
