package wheel

import (
	"fmt"
	"time"
)

// A periodic is the task of a Timeout that goes on after it has run.
type periodic struct {
	Task
	every     time.Duration
	fixedRate bool

	// Owned by whoever runs the Timeout, or tries to.
	refused, again time.Duration // the run that an executor has refused, and when it is tried again
	skipped        time.Duration // how far DropMissed has moved the grid point that was due
}

// grid returns the grid point of a run that is due at a deadline.
func (p *periodic) grid(deadline time.Duration) time.Duration {
	if deadline == p.again { // not reset since
		return p.refused
	}
	return deadline
}

// retry notes that a run is tried again at another deadline, so that its grid does not move.
func (p *periodic) retry(deadline, again time.Duration) {
	p.refused, p.again = p.grid(deadline), again
}

// skip leaves out a run that is late and those after it whose time has passed as well, and returns how many these are.
func (p *periodic) skip(late time.Duration) (runs int) {
	if !p.fixedRate {
		return 1
	}
	runs = int(late/p.every) + 1
	p.skipped = time.Duration(runs-1) * p.every
	return runs
}

// periodic returns how a Timeout goes on, nil if it does not.
func (t *Timeout) periodic() *periodic {
	p, _ := t.task.(*periodic)
	return p
}

// ScheduleAtFixedRate runs a task after a delay and then at every period from there: at delay, delay + period, delay + 2
// period. The grid does not drift. A run that is late does not move those after it; they follow at once, up to 16 in a tick,
// until the grid is reached again, and never two at a time. The period must be at least a tick.
//
// As in java.util.concurrent, a task that panics is not run again. Cancel ends it, also from within the task.
func (t *Timer) ScheduleAtFixedRate(task Task, delay, every time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(&periodic{Task: task, every: every, fixedRate: true}, delay)
}

// ScheduleWithFixedDelay runs a task after a delay and then again and again, each time a pause after the end of the run
// before. The pause must be at least a tick. What holds for panics and Cancel at a fixed rate holds here.
func (t *Timer) ScheduleWithFixedDelay(task Task, delay, pause time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(&periodic{Task: task, every: pause}, delay)
}

func (t *Timer) schedulePeriodic(p *periodic, delay time.Duration) (*Timeout, error) {
	if isNone(p.Task) {
		return nil, ErrNoTask
	}
	if p.every < t.cfg.Tick {
		return nil, fmt.Errorf("wheel: period is %v, must be at least the tick of %v", p.every, t.cfg.Tick)
	}
	return t.NewTimeout(p, delay)
}

// again schedules the next run of a periodic Timeout, unless it was cancelled while it ran. It reports whether that run is due
// already and left to the caller, if it may follow at once.
func (c *core) again(t *Timeout, p *periodic, ended, mayFollow bool) (follows bool) {
	if !ended {
		t.end()
		return false
	}
	now := c.now()
	from := now
	if p.fixedRate {
		from = p.grid(deadlineOf(t.word.Load())) + p.skipped
		p.skipped = 0
	}
	deadline := after(from, p.every)
	follows = mayFollow && deadline <= now
	switch {
	case !t.shard.reenter(t, deadline, follows):
		t.Cancel() // the Timer was stopped, if that is not what has happened
		return false
	case !follows:
		c.wakeFor(deadline)
	}
	return follows
}

// end takes a Timeout that runs to expired, unless it was cancelled.
func (t *Timeout) end() {
	word := t.word.Load()
	if stateOf(word) == running && t.word.CompareAndSwap(word, withState(word, expired)) {
		t.shard.core.freePending()
	}
}
