package wheel

import (
	"fmt"
	"time"
)

// A periodic is the task of a Timeout that runs repeatedly.
type periodic struct {
	Task
	every     time.Duration
	fixedRate bool

	// Owned by the goroutine that runs the Timeout or submits it.
	// The grid point of a refused run, and the deadline of its next attempt.
	refused, again time.Duration
	skipped        time.Duration // the time by which DropMissed has moved the grid point that was due
}

// grid returns the grid point of a run that is due at a deadline.
func (p *periodic) grid(deadline time.Duration) time.Duration {
	if deadline == p.again { // not reset since then
		return p.refused
	}
	return deadline
}

// retry records that a refused run has a new deadline, so that its grid does not move.
func (p *periodic) retry(deadline, again time.Duration) {
	p.refused, p.again = p.grid(deadline), again
}

// skip drops a late run and the later ones that are due as well, and returns their number.
func (p *periodic) skip(late time.Duration) (runs int) {
	if !p.fixedRate {
		return 1
	}
	runs = int(late/p.every) + 1
	p.skipped = time.Duration(runs-1) * p.every
	return runs
}

// periodic returns the periodic task of a Timeout, nil if it runs once.
func (t *Timeout) periodic() *periodic {
	p, _ := t.task.(*periodic)
	return p
}

// ScheduleAtFixedRate runs a task after a delay and then once per period: at delay, delay + period,
// delay + 2 period. The grid does not drift. A late run does not move the later runs: they follow
// at once, up to 16 per tick and never two at a time, until the grid is reached again. The period
// must be at least a tick.
//
// As in java.util.concurrent, a task that panics does not run again. Cancel ends the repetition,
// also from within the task.
func (t *Timer) ScheduleAtFixedRate(task Task, delay, every time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(&periodic{Task: task, every: every, fixedRate: true}, delay)
}

// ScheduleWithFixedDelay runs a task after a delay and then repeatedly, each time a pause after the
// end of the previous run. The pause must be at least a tick. Panics and Cancel end it as in
// [Timer.ScheduleAtFixedRate].
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

// again schedules the next run of a periodic Timeout, unless it was cancelled while it ran. If that
// run may follow at once and is due already, again reports true and leaves it to the caller.
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
		t.Cancel() // the Timer was stopped, unless the Timeout was already cancelled
		return false
	case !follows:
		c.wakeFor(deadline)
	}
	return follows
}

// end changes a running Timeout to expired, unless it was cancelled.
func (t *Timeout) end() {
	word := t.word.Load()
	if stateOf(word) == running && t.word.CompareAndSwap(word, withState(word, expired)) {
		t.shard.core.freePending()
	}
}
