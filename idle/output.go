package idle

import (
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outputs"
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
	began     mono.Stamp    // stamp of the last sweep
	beganAt   mono.Time     // when the last sweep began
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
	w.quiet, w.began = mono.Stamp(l.heardAt.Load()) < w.began, l.clock.Stamp()
	w.next, w.end, w.due, w.beganAt = 0, l.states.Len(), l.nextSweep(now), now
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
		switch now := l.clock.Elapsed(); {
		case now >= w.due:
			l.beginSweep(now)
		case l.reaper.outputIsHigh() && now >= w.beganAt.Add(l.clock.Tick()):
			w.next, w.end, w.turns, w.beganAt = 0, l.states.Len(), 0, now // besides those that are due
		default:
			return false
		}
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
		s := l.states.At(w.next)
		if !s.used() {
			continue
		}
		waits := s.conn.OutboundBuffered() > 0
		if waits || l.outputs.Has(w.next) {
			l.noteOutput(w.next, s)
		}
		if waits || ask {
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

const (
	// outputFree is the part of OutputLimit.Total that is free after connections were closed for
	// it.
	outputFree = 16
	// outputSlack is the part of OutputLimit.Total by which it may be exceeded while the loop with
	// the largest output has not closed connections yet.
	outputSlack = 8
	// outputSteps is the most connections that are checked at a time. At most shedBatch of them are
	// closed.
	outputSteps = 256
)

// hasLimitedOutput reports whether output of a connection waits, and is limited by Hard or Total.
// It is small, to be inlined into the path of a message.
func (l *loop) hasLimitedOutput(c gnet.Conn) bool {
	return l.hardLimit|l.totalLimit != 0 && c.OutboundBuffered() > 0
}

// checkOutput checks the output that waits for a connection after a call of the handler. It returns
// the Action of that call, or one that closes the connection.
func (l *loop) checkOutput(c gnet.Conn, action gnet.Action) gnet.Action {
	_, id := l.table.Find(key(c))
	s := l.states.At(id)
	if action != gnet.None || !l.isOutputLimited(s) {
		return action
	}
	n := c.OutboundBuffered()
	l.setOutput(id, n)
	if l.hardLimit == 0 || n <= l.hardLimit {
		return l.shedOutput(c)
	}
	l.askKernel(c)
	if l.evidence.Found == verdict.Ended { // gnet will report it
		return action
	}
	l.setOutput(id, 0)
	return l.endOnReturn(s, &ReapError{Reason: OverLimit, Bytes: n, LimitBytes: l.hardLimit})
}

func (l *loop) isOutputLimited(s *state) bool { return s.Judged() && l.pendingCloses[s] == nil }

// noteOutput records and returns how much output of a connection waits.
func (l *loop) noteOutput(id uint32, s *state) (n int) {
	if l.isOutputLimited(s) {
		n = s.conn.OutboundBuffered()
	}
	l.setOutput(id, n)
	return n
}

// setOutput records that n bytes of output of a connection wait.
func (l *loop) setOutput(id uint32, n int) {
	if l.totalLimit == 0 {
		return
	}
	if grown := l.outputs.Set(id, n); grown != 0 {
		_, most := l.outputs.Largest()
		l.largestOutput.Store(int64(most))
		l.reaper.output.Add(int64(grown))
	}
}

// forgetOutputs is called when there is no OutputLimit.Total any more.
func (l *loop) forgetOutputs() {
	l.reaper.output.Add(-int64(l.outputs.Sum()))
	l.largestOutput.Store(0)
	l.outputs = outputs.Set{}
}

// outputIsHigh reports whether more than half of OutputLimit.Total is in use. Then the outputs are
// swept in each tick.
func (r *Reaper) outputIsHigh() bool {
	total := r.settings.Load().cfg.OutputLimit.Total
	return total > 0 && r.output.Load() > int64(total/2)
}

// mustShedOutput reports whether all connections together have more output than OutputLimit.Total,
// and this loop can close some.
func (l *loop) mustShedOutput() bool {
	return l.totalLimit > 0 && l.reaper.output.Load() > int64(l.totalLimit) && l.outputs.Len() > 0
}

// shedOutput closes the connections of the loop with the most output, if all connections together
// have more than OutputLimit.Total. A call of the handler for the given connection has just
// returned; it is nil in a task. The result is the Action for gnet.
func (l *loop) shedOutput(returned gnet.Conn) gnet.Action {
	var own *ReapError // for the given connection, which is closed last
	closed := 0
	for step := 0; step < outputSteps && closed < shedBatch; step++ {
		id, n := l.outputs.Largest()
		if !l.isOverTotal(n, closed) {
			break
		}
		s := l.states.At(id)
		if l.noteOutput(id, s) < n {
			continue // the peer has taken some
		}
		l.askKernel(s.conn)
		if l.evidence.Found == verdict.Ended { // gnet will report it; otherwise a sweep counts it again
			l.setOutput(id, 0)
			continue
		}
		if !l.isOverTotal(n, closed) { // it may have taken long
			break
		}
		reason := &ReapError{
			Reason: OverLimit, Bytes: s.conn.OutboundBuffered(), LimitBytes: l.totalLimit, TotalBytes: int(l.reaper.output.Load()),
		}
		l.setOutput(id, 0)
		if closed++; s.is(returned) {
			own = reason
		} else if l.end(s, reason); l.stop != nil { // OnClose has asked for it
			return gnet.Shutdown
		}
	}
	if own == nil {
		return gnet.None
	}
	r, id := l.table.Find(key(returned))
	if r == nil { // OnClose of another connection has closed it
		return gnet.None
	}
	return l.endOnReturn(l.states.At(id), own)
}

// isOverTotal reports whether the loop is to close its connection with the most output, n bytes,
// after it has closed some others. If another loop has a larger one, the driver wakes that loop.
func (l *loop) isOverTotal(n, closed int) bool {
	if n == 0 {
		return false
	}
	all, total := l.reaper.output.Load(), int64(l.totalLimit)
	keep := total
	if closed > 0 {
		keep -= total / outputFree
	}
	if all <= keep {
		return false
	}
	for _, other := range l.reaper.registry.Load().loops {
		if other != l && other.largestOutput.Load() > int64(n) {
			l.reaper.continueSoon()
			return all > total+total/outputSlack
		}
	}
	return true
}
