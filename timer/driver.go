package timer

import (
	"math"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

// never is the value of wakeAt while nothing is filed.
const never = math.MaxInt64

// wakeBy makes the driver wake up when a deadline is due, and starts the driver if there is none.
// The caller is the driver, or holds the mu of a shard of a Timer that is not closed.
func (c *core) wakeBy(deadline time.Duration) {
	if int64(deadline) >= c.wakeAt.Load() {
		return
	}
	due := (deadline + c.cfg.Tick - 1) / c.cfg.Tick * c.cfg.Tick
	if int64(due) >= c.wakeAt.Load() { // most deadlines before wakeAt are in the last tick before it
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(due) >= c.wakeAt.Load() {
		return
	}
	c.wakeAt.Store(int64(due))
	if !c.driving {
		c.driving = true
		c.driver.Go(c.drive)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // a signal is already waiting
	}
}

// drive is the goroutine of a Timer. If a task ends the goroutine by runtime.Goexit, drive starts
// another one.
func (c *core) drive() {
	returned := false
	defer func() {
		if !returned {
			c.driver.Go(c.drive)
		}
	}()
	alarm := time.NewTimer(never)
	defer alarm.Stop()
	for more := true; more; more = c.sleep(alarm) {
		c.pass()
	}
	returned = true
}

// sleep sleeps until wakeAt. It returns false if the driver ends.
func (c *core) sleep(alarm *time.Timer) bool {
	for {
		at := c.wakeAt.Load()
		if at == never && c.leave() {
			return false
		}
		wait := time.Duration(at) - c.now()
		if wait <= 0 {
			return true
		}
		alarm.Reset(wait)
		select {
		case <-alarm.C:
		case <-c.wake:
		case <-c.stopping:
			return false
		}
	}
}

// leave ends the driver, unless a Timeout was filed meanwhile.
func (c *core) leave() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.driving = c.wakeAt.Load() != never
	return !c.driving
}

// pass dispatches all due Timeouts and sets wakeAt.
func (c *core) pass() {
	c.dispatchDue()       // left by a task that has called runtime.Goexit
	c.wakeAt.Store(never) // from here on, a deadline that is filed sets it again
	c.idles.tick(c)
	now := c.now()
	for _, s := range c.shards {
		for more := true; more; {
			more = c.collect(s, now)
			c.dispatchDue()
		}
	}
	for _, e := range []*executor{&c.usual, &c.slowExecutor} {
		if now = c.now(); e.forget(now) {
			c.wakeBy(after(now, retryAfter))
		}
	}
}

// batch is the number of entries that collect takes out of the wheel under one lock.
const batch = 256

// collect moves due Timeouts of a shard to due. It reports whether there are more of them;
// otherwise the driver wakes up for the next one.
func (c *core) collect(s *shard, now time.Duration) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, more = s.wheel.Advance(now, batch, func(_ wheel.Handle, t *Timeout) {
		s.submit(t)
		c.due = append(c.due, t)
	})
	if s.idles != nil {
		_, rest := s.idles.Advance(now, batch, func(_ wheel.Handle, i *Idle) { s.lookAt(i, now) })
		more = more || rest
	}
	if len(c.due) > 0 {
		c.retain()
	}
	if due, ok := s.wheel.NextDue(); ok && !more && !c.closed {
		c.wakeBy(due)
	}
	return more
}

// dispatchDue dispatches the Timeouts in due, for which collect has called retain.
func (c *core) dispatchDue() {
	if len(c.due) == 0 {
		return
	}
	c.watchdog.alarm.Reset(c.cfg.SlowAfter)
	defer c.watchdog.end()
	for c.next < len(c.due) {
		t := c.due[c.next]
		c.due[c.next] = nil
		c.next++ // before the task, which may call runtime.Goexit
		now := c.now()
		c.watchdog.begin(t, now)
		c.dispatch(t, now)
	}
	c.due, c.next = c.due[:0], 0
	c.release()
}
