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
}

// periodic returns how a Timeout goes on, nil if it does not.
func (t *Timeout) periodic() *periodic {
	p, _ := t.task.(*periodic)
	return p
}

// ScheduleAtFixedRate runs a task after a delay and then at every period from there: at delay, delay + period, delay + 2
// period. The grid does not drift. A run that is late does not move those after it; they follow one per tick until the grid
// is reached again, and never two at a time. The period must be at least a tick.
//
// As in java.util.concurrent, a task that panics is not run again. Cancel ends it, also from within the task.
func (t *Timer) ScheduleAtFixedRate(task Task, delay, every time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(&periodic{task, every, true}, delay)
}

// ScheduleWithFixedDelay runs a task after a delay and then again and again, each time a pause after the end of the run
// before. The pause must be at least a tick. What holds for panics and Cancel at a fixed rate holds here.
func (t *Timer) ScheduleWithFixedDelay(task Task, delay, pause time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(&periodic{task, pause, false}, delay)
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

// again schedules the next run of a periodic Timeout, unless it was cancelled while it ran.
func (c *core) again(t *Timeout, p *periodic, panicked bool) {
	if panicked {
		t.end()
		return
	}
	from := c.now()
	if p.fixedRate {
		from = deadlineOf(t.word.Load())
	}
	deadline := after(from, p.every)
	if t.shard.reenter(t, deadline) {
		c.wakeFor(deadline)
	} else {
		t.Cancel() // the Timer was stopped, if that is not what has happened
	}
}

// end takes a Timeout that runs to expired, unless it was cancelled.
func (t *Timeout) end() {
	word := t.word.Load()
	if stateOf(word) == running {
		t.word.CompareAndSwap(word, withState(word, expired))
	}
}
