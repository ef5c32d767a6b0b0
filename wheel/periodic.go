package wheel

import (
	"fmt"
	"time"
)

// A period is how a Timeout goes on after its task has run.
type period struct {
	every     time.Duration
	fixedRate bool
}

// ScheduleAtFixedRate runs a task after a delay and then at every period from there: at delay, delay + period, delay + 2
// period. The grid does not drift. A run that is late does not move those after it; they follow one per tick until the grid
// is reached again, and never two at a time. The period must be at least a tick.
//
// As in java.util.concurrent, a task that panics is not run again. Cancel ends it, also from within the task.
func (t *Timer) ScheduleAtFixedRate(task Task, delay, every time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(task, delay, &period{every, true})
}

// ScheduleWithFixedDelay runs a task after a delay and then again and again, each time a pause after the end of the run
// before. The pause must be at least a tick. What holds for panics and Cancel at a fixed rate holds here.
func (t *Timer) ScheduleWithFixedDelay(task Task, delay, pause time.Duration) (*Timeout, error) {
	return t.schedulePeriodic(task, delay, &period{pause, false})
}

func (t *Timer) schedulePeriodic(task Task, delay time.Duration, p *period) (*Timeout, error) {
	if p.every < t.cfg.Tick {
		return nil, fmt.Errorf("wheel: period is %v, must be at least the tick of %v", p.every, t.cfg.Tick)
	}
	return t.schedule(task, delay, p)
}

// again schedules the next run of a periodic Timeout, unless it was cancelled while it ran.
func (c *core) again(t *Timeout, panicked bool) {
	if panicked {
		t.end()
		return
	}
	from := c.now()
	if t.period.fixedRate {
		from = deadlineOf(t.word.Load())
	}
	deadline := after(from, t.period.every)
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
		t.word.CompareAndSwap(word, newWord(deadlineOf(word), expired))
	}
}
