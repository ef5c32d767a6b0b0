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
		t.move(running, expired)
		return
	}
	deadline := c.deadlineIn(t.period.every)
	if word := t.word.Load(); t.period.fixedRate {
		deadline = min(deadlineOf(word), never-int64(t.period.every)) + int64(t.period.every)
	}
	word := t.word.Load()
	if stateOf(word) != running || !t.word.CompareAndSwap(word, newWord(deadline, pending)) {
		return // cancelled
	}
	c.enterPending(t.shard)
	if !t.shard.file(t, deadline) {
		if t.move(pending, cancelled) { // the Timer was stopped while it ran
			t.tellCancelled()
		}
		return
	}
	c.wakeFor(deadline)
}
