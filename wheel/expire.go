package wheel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// expire runs the task of a due Timeout, or submits it to its executor.
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
		c.run(t, now) // if it returns false, Stop finds the Timeout in the list of due ones
		return
	}
	c.queue.add(t)
	if err := submit(executor, func() { c.runQueued(t) }); err != nil {
		c.refused(t, err)
	}
}

// submit passes a function to an executor. A panic of the executor counts as a refusal.
func submit(executor func(run func()) error, run func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("wheel: executor panicked: %v", v)
		}
	}()
	return executor(run)
}

// run calls the task, unless it was cancelled or reset meanwhile. It reports false if the Timeout
// was reset and the Timer is stopped: then it stays in place for Stop to find.
func (c *core) run(t *Timeout, now time.Duration) bool {
	next := expired
	if t.periodic() != nil {
		next = running
	}
	for runs := 0; ; {
		word := t.word.Load()
		switch {
		case stateOf(word) != pending:
			return true
		case deadlineOf(word) > now: // reset
			return t.shard.refile(t)
		}
		if !t.begin(word, next) {
			continue
		}
		t.shard.expired.Add(1)
		late := now - deadlineOf(word)
		c.tally.late(late)
		if late > c.cfg.MissedAfter {
			c.tally.missed.Add(1)
		}
		if runs++; !c.call(t, now, runs < runsAtOnce) {
			return true
		}
		now = c.now()
	}
}

// runsAtOnce is the number of runs of a late periodic Timeout that may follow each other at once.
// There is at most one run per tick otherwise, so this brings it back to its grid.
const runsAtOnce = 16

// call calls the task and schedules the next run of a periodic one. It reports whether that run
// follows at once.
func (c *core) call(t *Timeout, began time.Duration, mayFollow bool) (follows bool) {
	ended := false
	defer func() {
		if c.cfg.SlowAfter > 0 {
			now := c.now()
			if took := now - began; took > c.cfg.SlowAfter {
				c.tookLong(t, took, now)
			}
		}
		if p := t.periodic(); p != nil {
			follows = c.again(t, p, ended, mayFollow)
		}
	}()
	func() {
		defer c.recoverPanic(t, &ended)
		t.task.Run(t)
		ended = true
	}()
	return follows
}

// errGoexit is reported for a task that has ended its goroutine.
var errGoexit = errors.New("wheel: a task has called runtime.Goexit, as FailNow of package testing does")

// recoverPanic is deferred around calls of a task. It reports a task that did not return.
func (c *core) recoverPanic(t *Timeout, ended *bool) {
	v := recover()
	if *ended {
		return
	}
	if v == nil {
		v = errGoexit
	}
	c.tally.panics.Add(1)
	stack := debug.Stack()
	if c.cfg.OnPanic == nil {
		c.logPanic("a task has panicked", t, v, stack)
		return
	}
	defer c.recoverHook(t)
	c.cfg.OnPanic(t, v, stack)
}

// recoverHook is deferred around calls of hooks: their panics must not end the Timer either.
func (c *core) recoverHook(t *Timeout) {
	if v := recover(); v != nil {
		c.logPanic("a hook of a timer has panicked", t, v, debug.Stack())
	}
}

// logPanic logs a panic that has no hook, by slog.Default if there is no Logger.
func (c *core) logPanic(message string, t *Timeout, v any, stack []byte) {
	logger := c.cfg.Logger
	if !logger.Enabled(context.Background(), slog.LevelError) {
		logger = slog.Default()
	}
	logger.Error(message, "timeout", t, "panic", v, "stack", string(stack))
}

// dropMissed drops a run that is later than the policy allows, and reports whether it did.
func (c *core) dropMissed(t *Timeout, now time.Duration) bool {
	word := t.word.Load()
	late := now - deadlineOf(word)
	if c.cfg.Missed != DropMissed || stateOf(word) != pending || late <= c.cfg.MissedAfter {
		return false
	}
	p := t.periodic()
	if p != nil && !t.begin(word, running) || p == nil && !t.cancel(word) {
		return false // cancelled or reset just now: run detects it
	}
	runs := 1
	if p != nil {
		runs = p.skip(late)
	}
	c.tally.missed.Add(uint64(runs))
	c.tally.dropped.Add(uint64(runs))
	c.reportMissed(t, late)
	if p != nil {
		c.again(t, p, true, false)
	} else {
		t.tellCancelled()
	}
	return true
}

func (c *core) reportMissed(t *Timeout, late time.Duration) {
	if c.cfg.OnMissed == nil {
		c.tally.droppedWarned.warn(c, "a task was dropped since its time was missed", "timeout", t, "late", late)
		return
	}
	defer c.recoverHook(t)
	c.cfg.OnMissed(t, late)
}

// refusedRetry is the delay before the next attempt to submit a refused task, unless a hook
// decides.
const refusedRetry = 100 * time.Millisecond

// refused schedules the next attempt for a Timeout that an executor has refused.
func (c *core) refused(t *Timeout, err error) {
	c.tally.refused.Add(1)
	word := t.word.Load()
	if retry := c.askRetry(t, err); retry < 0 {
		if t.cancelPending() {
			t.tellCancelled()
		}
	} else {
		deadline := c.deadlineIn(retry)
		if p := t.periodic(); p != nil {
			p.retry(deadlineOf(word), deadline)
		}
		if stateOf(word) == pending {
			// Unless it was cancelled or reset meanwhile.
			t.word.CompareAndSwap(word, withDeadline(word, deadline))
		}
		t.shard.refile(t)
	}
	c.queue.remove(t)
}

// askRetry returns the delay before the next attempt to submit a refused task; negative means
// never.
func (c *core) askRetry(t *Timeout, err error) (retry time.Duration) {
	retry = refusedRetry
	if c.cfg.OnRefused == nil {
		c.tally.refusedWarned.warn(c, "an executor has refused a task, it is tried again", "timeout", t, "error", err, "after", retry)
		return retry
	}
	defer c.recoverHook(t)
	return c.cfg.OnRefused(t, err)
}

// A queue has the Timeouts that wait in executors. A Timeout may be there more than once, if it was
// reset while it waited.
type queue struct {
	mu   sync.Mutex
	held map[*Timeout]int // guarded by mu; number of times
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

// runQueued is the function that is passed to an executor.
func (c *core) runQueued(t *Timeout) {
	c.busy.Add(1)
	if c.run(t, c.now()) {
		c.queue.remove(t)
	}
	if c.busy.Add(-1) == 0 && c.leak.garbage.Load() {
		c.wakeDriver()
	}
}
