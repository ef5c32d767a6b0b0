package wheel

import (
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// expire brings a Timeout whose slot has come up to where its task runs.
func (c *core) expire(t *Timeout) {
	now := c.now()
	if stateOf(t.word.Load()) != pending || c.dropMissed(t, now) {
		return
	}
	executor := c.cfg.Executor
	if c.slow.applies(t, now) {
		executor = c.cfg.SlowExecutor
	}
	if executor == nil {
		c.run(t, now) // what Stop has left pending, it finds among those that were due
		return
	}
	c.queue.add(t)
	if err := submit(executor, func() { c.runQueued(t) }); err != nil {
		c.refused(t, err)
	}
}

// submit hands a function to an executor. One that panics has refused it.
func submit(executor func(run func()) error, run func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("wheel: executor panicked: %v", v)
		}
	}()
	return executor(run)
}

// run calls the task, unless it was cancelled or reset in the meantime. It reports false if it was reset and
// the Timer is stopped: Stop will find it where it is.
func (c *core) run(t *Timeout, now time.Duration) bool {
	next := expired
	if t.periodic() != nil {
		next = running
	}
	for {
		word := t.word.Load()
		switch {
		case stateOf(word) != pending:
			return true
		case deadlineOf(word) > now: // reset
			return t.shard.refile(t, deadlineOf(word))
		}
		if t.begin(word, next) {
			t.shard.expired.Add(1)
			c.tally.late(now - deadlineOf(word))
			c.call(t, now)
			return true
		}
	}
}

// call calls the task and sees to what comes after.
func (c *core) call(t *Timeout, began time.Duration) {
	panicked := true
	defer func() {
		if c.cfg.SlowAfter > 0 {
			now := c.now()
			if took := now - began; took > c.cfg.SlowAfter {
				c.tookLong(t, took, now)
			}
		}
		if p := t.periodic(); p != nil {
			c.again(t, p, panicked)
		}
	}()
	func() {
		defer c.recoverPanic(t)
		t.task.Run(t)
		panicked = false
	}()
}

// recoverPanic is deferred around calls of the user's code. A panic of a hook is not recovered.
func (c *core) recoverPanic(t *Timeout) {
	v := recover()
	if v == nil {
		return
	}
	c.tally.panics.Add(1)
	if stack := debug.Stack(); c.cfg.OnPanic != nil {
		c.cfg.OnPanic(t, v, stack)
	} else {
		c.cfg.Logger.Error("a task has panicked", "panic", v, "stack", string(stack))
	}
}

// dropMissed cancels the run of a Timeout that is later than the policy allows, and reports whether it did.
func (c *core) dropMissed(t *Timeout, now time.Duration) bool {
	word := t.word.Load()
	late := now - deadlineOf(word)
	if stateOf(word) != pending || late <= c.cfg.MissedAfter {
		return false
	}
	c.tally.missed.Add(1)
	if c.cfg.Missed != DropMissed {
		return false
	}
	p := t.periodic()
	if p != nil && !t.begin(word, running) || p == nil && !t.cancel(word) {
		return false // cancelled or reset this very moment: run finds out
	}
	c.tally.dropped.Add(1)
	if c.cfg.OnMissed != nil {
		c.cfg.OnMissed(t, late)
	} else {
		c.tally.droppedWarned.warn(c, "a task was dropped since its time was missed", "late", late)
	}
	if p != nil {
		c.again(t, p, false)
	} else {
		t.tellCancelled()
	}
	return true
}

// refusedRetry is when a refused task is tried again, unless a hook decides.
const refusedRetry = 100 * time.Millisecond

// refused keeps a Timeout that an executor did not take.
func (c *core) refused(t *Timeout, err error) {
	c.tally.refused.Add(1)
	retry := refusedRetry
	if c.cfg.OnRefused != nil {
		retry = c.cfg.OnRefused(t, err)
	} else {
		c.tally.refusedWarned.warn(c, "an executor has refused a task, it is tried again", "error", err, "after", retry)
	}
	if retry >= 0 {
		t.shard.refile(t, c.deadlineIn(retry))
	} else if t.cancelPending() {
		t.tellCancelled()
	}
	c.queue.remove(t)
}

// A queue is what executors hold: a Timeout may be there more than once, if it was reset while it waited.
type queue struct {
	mu   sync.Mutex
	held map[*Timeout]int // guarded by mu; how many times
}

func (q *queue) add(t *Timeout) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == nil {
		q.held = map[*Timeout]int{}
	}
	q.held[t]++
}

func (q *queue) remove(t *Timeout) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held[t]--; q.held[t] <= 0 {
		delete(q.held, t)
	}
}

func (q *queue) all() []*Timeout {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.held))
}

// runQueued is what an executor calls.
func (c *core) runQueued(t *Timeout) {
	c.busy.Add(1)
	if c.run(t, c.now()) {
		c.queue.remove(t)
	}
	if c.busy.Add(-1) == 0 && c.leak.garbage.Load() {
		c.wakeDriver()
	}
}
