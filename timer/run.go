package timer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

var (
	errTaskGoexit     = errors.New("runtime.Goexit was called, as FailNow of package testing does")
	errExecutorGoexit = errors.New("timer: the executor has called runtime.Goexit")
)

// dispatch runs a submitted Timeout, or gives it to its executor.
func (c *core) dispatch(t *Timeout, now time.Duration) {
	if !t.confirm(now) {
		return
	}
	if e := c.executor(t, now); e.submit != nil {
		t.execute(e)
	} else {
		t.runAt(now)
	}
}

// confirm reports whether a submitted Timeout is still due. It skips a run that is too late.
func (t *Timeout) confirm(now time.Duration) bool {
	s, c := t.shard, t.shard.core
	s.mu.Lock()
	ready := t.ready(now)
	late := now - t.deadline
	skipped := ready && c.cfg.SkipAfter > 0 && late > c.cfg.SkipAfter
	if skipped {
		t.skip(now)
	}
	s.mu.Unlock()
	if skipped {
		c.warn(&c.warnings.skipped, "a run was skipped because it was too late", "timeout", t, "late", late)
	}
	return ready && !skipped
}

// ready reports whether a submitted Timeout is due. A Timeout that was stopped is retired, one that
// was reset returns to the wheel. The caller holds the mu of the shard.
func (t *Timeout) ready(now time.Duration) bool {
	switch {
	case t.place != submitted: // the executor has called run twice
		return false
	case t.armed && t.deadline <= now:
		return true
	}
	t.shard.retire(t)
	if t.armed {
		t.shard.file(t, t.deadline)
	}
	return false
}

// skip leaves out a run. The caller holds the mu of the shard.
func (t *Timeout) skip(now time.Duration) {
	s := t.shard
	s.retire(t)
	if t.period == 0 {
		s.stats.Missed++
		s.disarm(t)
		return
	}
	s.stats.Missed += t.renew(now)
	s.file(t, t.deadline)
}

// renew moves the deadline of a periodic Timeout to the next one after now, and returns the
// number of periods between them.
func (t *Timeout) renew(now time.Duration) (periods uint64) {
	if t.period < 0 {
		t.deadline = after(now, -t.period)
		return 1
	}
	n := (now-t.deadline)/t.period + 1
	t.deadline = after(t.deadline+(n-1)*t.period, t.period)
	return uint64(n)
}

// execute gives a Timeout to an executor. If the executor does not accept it, it is submitted again
// later.
func (t *Timeout) execute(e *executor) {
	err := errExecutorGoexit // unless the executor returns
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("timer: the executor has panicked: %v", v)
		}
		if err != nil && t.refused(e) {
			c := t.shard.core
			c.warn(&c.warnings.refused, "an executor has refused a task", "timeout", t, "error", err)
		}
	}()
	err = e.submit(func() { t.run(e) })
}

// refused returns a Timeout to the wheel that an executor has refused. It reports false if the
// executor has called run all the same.
func (t *Timeout) refused(e *executor) bool {
	s := t.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.place != submitted {
		return false
	}
	s.stats.Refused++
	s.retire(t)
	if now := s.core.now(); t.armed && t.deadline > now { // reset meanwhile
		s.file(t, t.deadline)
	} else if t.armed {
		s.file(t, after(now, retryAfter)) // the deadline, and with it the grid, stays
		e.noteRefusal(t, now)
	}
	return true
}

// runAt runs a submitted Timeout, unless it was stopped or reset meanwhile.
func (t *Timeout) runAt(began time.Duration) {
	s, c := t.shard, t.shard.core
	s.mu.Lock()
	if !t.ready(began) {
		s.mu.Unlock()
		return
	}
	c.retain()
	t.place, t.moved = running, false
	s.stats.Runs++
	s.stats.MaxLate = max(s.stats.MaxLate, began-t.deadline)
	if t.period == 0 {
		s.disarm(t)
	}
	s.mu.Unlock()

	returned := false
	defer c.release()
	defer func() {
		v := recover()
		t.finish(began, returned)
		if returned {
			return
		}
		if v == nil {
			v = errTaskGoexit
		}
		c.log().Error("a task has panicked", "timeout", t, "panic", v, "stack", string(debug.Stack()))
	}()
	t.task()
	returned = true
}

// finish ends a run and schedules the next one, if there is one.
func (t *Timeout) finish(began time.Duration, returned bool) {
	s, c := t.shard, t.shard.core
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.now()
	s.retire(t)
	if now-began > c.cfg.SlowAfter {
		s.stats.Slow++
		if c.cfg.SlowExecutor != nil {
			c.slow.count(t, now)
		}
	}
	if !returned {
		s.stats.Panics++
	}
	switch {
	case !t.armed:
		return
	case t.moved: // the deadline is that of Reset
	case !returned:
		s.disarm(t)
		return
	default:
		s.stats.Missed += t.renew(now) - 1
	}
	s.file(t, t.deadline)
}
