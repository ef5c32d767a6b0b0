package wheel

import (
	"bytes"
	"math"
	"runtime"
	"strconv"
	"time"
)

// drive is the goroutine of a Timer. A task that ends it by runtime.Goexit gets it another one.
func (c *core) drive() {
	ended := false
	defer func() {
		if ended {
			close(c.done)
		} else {
			go c.drive()
		}
	}()
	c.driver.Store(goroutineID())
	c.sleepAndPass()
	ended = true
}

// sleepAndPass sleeps until the first slot that holds something comes up and runs what is due, until the Timer is stopped.
func (c *core) sleepAndPass() {
	if !c.pass() { // what a task has left behind that has ended the goroutine
		return
	}
	alarm := time.NewTimer(math.MaxInt64)
	defer alarm.Stop()
	for {
		// From here to sleep, whatever is scheduled must wake the driver, since nextDue may have missed it.
		c.wakeBelow.Store(math.MaxInt64)
		due := c.nextDue()
		wait := due - c.now()
		if wait > 0 {
			if c.abandoned() {
				return
			}
			c.wakeBelow.Store(int64(due - c.cfg.Tick + 1))
			alarm.Reset(wait)
			select {
			case <-alarm.C:
			case <-c.wake:
			case <-c.stopping:
				return
			}
			continue
		}
		c.wakeBelow.Store(math.MinInt64)
		if !c.pass() {
			return
		}
	}
}

// wakeFor wakes the driver if it sleeps beyond the tick of a deadline.
func (c *core) wakeFor(deadline time.Duration) {
	if int64(deadline) < c.wakeBelow.Load() {
		c.wakeDriver()
	}
}

func (c *core) wakeDriver() {
	select {
	case c.wake <- struct{}{}:
	default: // it is on its way
	}
}

// nextDue returns when the first slot that holds something comes up, endOfTime if there is none.
func (c *core) nextDue() time.Duration {
	due := time.Duration(endOfTime)
	for _, s := range c.shards {
		if d, ok := s.nextDue(); ok {
			due = min(due, d)
		}
	}
	return due
}

// pass runs all that is due now, and returns false once the Timer is stopped.
func (c *core) pass() bool {
	now := c.now()
	for _, s := range c.shards {
		for more := true; more; {
			c.expireAll(s) // those that a task has left which has ended the goroutine
			more = s.collect(now)
			c.expireAll(s)
		}
		s.forget()
	}
	select {
	case <-c.stopping:
		return false
	default:
		return true
	}
}

// expireAll expires what the shard has collected: nothing that Stop has cancelled.
func (c *core) expireAll(s *shard) {
	if s.ran == len(s.due) {
		return
	}
	c.calling.Store(true)
	for s.ran < len(s.due) {
		s.ran++
		c.expire(s.due[s.ran-1])
	}
	c.calling.Store(false)
}

// goroutineID returns the number that the runtime gives the calling goroutine, which is nowhere to be had but at the
// beginning of a stack trace: "goroutine 7 [running]:".
func goroutineID() uint64 {
	var trace [64]byte
	fields := bytes.Fields(trace[:runtime.Stack(trace[:], false)])
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic("BUG: wheel: stack trace begins with " + string(trace[:]))
	}
	return id
}
