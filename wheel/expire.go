package wheel

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// expire brings a Timeout whose slot has come up to where its task runs.
func (c *core) expire(t *Timeout) {
	if c.dropMissed(t) {
		return
	}
	executor := c.cfg.Executor
	if c.slow.applies(t) {
		executor = c.cfg.SlowExecutor
	}
	if executor == nil {
		c.run(t) // what Stop has left pending, it finds among those that were due
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
// the Timer is stopped.
func (c *core) run(t *Timeout) bool {
	began := c.now()
	for {
		word := t.word.Load()
		switch {
		case stateOf(word) != pending:
			return true
		case deadlineOf(word) > began: // reset
			return t.shard.file(t, deadlineOf(word))
		}
		next := expired
		if t.period != nil {
			next = running
		}
		if t.word.CompareAndSwap(word, newWord(deadlineOf(word), next)) {
			t.shard.count(pending, next)
			c.tally.late(time.Duration(began - deadlineOf(word)))
			c.call(t, began)
			return true
		}
	}
}

// call calls the task and sees to what comes after.
func (c *core) call(t *Timeout, began int64) {
	panicked := true
	defer func() {
		if took := time.Duration(c.now() - began); c.cfg.SlowAfter > 0 && took > c.cfg.SlowAfter {
			c.tookLong(t, took)
		}
		if t.period != nil {
			c.again(t, panicked)
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
func (c *core) dropMissed(t *Timeout) bool {
	word := t.word.Load()
	late := time.Duration(c.now() - deadlineOf(word))
	if stateOf(word) != pending || late <= c.cfg.MissedAfter {
		return false
	}
	c.tally.missed.Add(1)
	if c.cfg.Missed != DropMissed {
		return false
	}
	next := cancelled
	if t.period != nil {
		next = running
	}
	if !t.word.CompareAndSwap(word, newWord(deadlineOf(word), next)) {
		return false // cancelled or reset this very moment: run finds out
	}
	c.leavePending(t.shard)
	c.tally.dropped.Add(1)
	if c.cfg.OnMissed != nil {
		c.cfg.OnMissed(t, late)
	} else {
		c.tally.warn(c, "a task was dropped since its time was missed", "late", late)
	}
	if t.period != nil {
		c.again(t, false)
	} else {
		t.shard.cancelled.Add(1)
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
		c.tally.warn(c, "an executor has refused a task, it is tried again", "error", err, "after", retry)
	}
	c.queue.remove(t)
	if retry < 0 || !t.shard.file(t, c.deadlineIn(retry)) {
		if t.move(pending, cancelled) {
			t.tellCancelled()
		}
	}
}

// A queue is the set of Timeouts that executors have and have not begun to run.
type queue struct {
	mu      sync.Mutex
	waiting map[*Timeout]struct{} // guarded by mu
}

func (q *queue) add(t *Timeout) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting == nil {
		q.waiting = map[*Timeout]struct{}{}
	}
	q.waiting[t] = struct{}{}
}

func (q *queue) remove(t *Timeout) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, t)
}

func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) > 0
}

func (q *queue) all() (all []*Timeout) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for t := range q.waiting {
		all = append(all, t)
	}
	clear(q.waiting)
	return all
}

// runQueued is what an executor calls.
func (c *core) runQueued(t *Timeout) {
	c.queue.remove(t)
	if !c.run(t) && t.move(pending, cancelled) { // reset, but the Timer was stopped
		t.tellCancelled()
	}
}
