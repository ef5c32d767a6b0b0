package idle

import (
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
)

// A sweep goes through the connections of a loop and finds those for which output has begun to wait.
// No event tells of output: other goroutines write as well. A connection without output costs one
// look at the buffer of the event loop, without a system call.
type sweep struct {
	next  uint32        // id of the next state; those before it are done
	end   uint32        // id at which the sweep ends
	due   time.Duration // when the next sweep begins; never if output is not limited
	round uint32        // number of sweeps so far
}

// sweepStep is how many connections are swept between two readings of the clock.
const sweepStep = 64

// resetSweep makes sweeps follow other limits.
func (l *loop) resetSweep() {
	if l.set.limits.PollOutput() == 0 {
		l.sweep = sweep{due: never}
		return
	}
	l.sweep.due = min(l.sweep.due, l.clock.Elapsed()+l.set.limits.PollOutput())
}

// sweepOutput goes on with a sweep until the given time is spent. It reports whether there is more.
func (l *loop) sweepOutput(spent func() bool) (more bool) {
	w := &l.sweep
	if w.next == w.end {
		now := l.clock.Elapsed()
		if now < w.due {
			return false
		}
		w.next, w.end, w.due = 0, l.states.used, max(w.due+l.set.limits.PollOutput(), now)
		w.round++
	}
	for w.next < w.end {
		if spent() {
			return true
		}
		for end := min(w.next+sweepStep, w.end); w.next < end; w.next++ {
			if s := l.states.at(w.next); s.used() {
				l.sweepOne(w.next, s)
			}
		}
	}
	return false
}

// sweepOne begins to poll a connection for which output waits. The kernel may hold output of which
// the buffer of the event loop shows nothing. It is asked once in WriteStallTimeout.
func (l *loop) sweepOne(id uint32, s *state) {
	if s.flags.has(exempt|observed) || s.instants[atStuck] != 0 || s.instants[atOver] != 0 {
		return // not limited, or polled already
	}
	c := l.conn(s)
	if c.OutboundBuffered() == 0 && !l.mayStall(id) {
		return
	}
	ev := &l.evidence
	now := l.askKernel(c)
	if ev.Found == verdict.Ended {
		return
	}
	r, _ := l.table.find(c)
	f := l.facts(r, id, s, now)
	l.learn(r, s, &f, ev, now, false)
	if f.OutputWaits() {
		l.rearm(id, s)
	}
}

// mayStall reports whether it is the turn of a connection to be asked for output in the kernel.
func (l *loop) mayStall(id uint32) bool {
	lim := l.set.limits
	if lim.Stall == 0 {
		return false
	}
	every := lim.PollOutput()
	return (l.sweep.round+id)%uint32(max(lim.Stall/every, 1)) == 0
}
