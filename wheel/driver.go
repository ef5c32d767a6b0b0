package wheel

import (
	"bytes"
	"math"
	"runtime"
	"strconv"
	"time"
)

// drive is the goroutine of a Timer. If a task ends the goroutine by runtime.Goexit, drive starts
// another one.
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

// sleepAndPass sleeps until the next slot with entries comes up and runs due tasks, until the Timer
// is stopped.
func (c *core) sleepAndPass() {
	if !c.pass() { // runs due tasks that are left over from a goroutine that ended
		return
	}
	alarm := time.NewTimer(math.MaxInt64)
	defer alarm.Stop()
	for {
		// From here to the sleep, every new deadline must wake the driver, since nextDue may miss
		// it.
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
	default: // a signal is already waiting
	}
}

// nextDue returns the instant at which the next slot with entries comes up, endOfTime if there is
// none.
func (c *core) nextDue() time.Duration {
	due := time.Duration(endOfTime)
	for _, s := range c.shards {
		if d, ok := s.nextDue(); ok {
			due = min(due, d)
		}
	}
	return due
}

// pass runs all due tasks, and returns false if the Timer is stopped.
func (c *core) pass() bool {
	now := c.now()
	for _, s := range c.shards {
		for more := true; more; {
			c.expireAll(s) // left over from a goroutine that ended
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

// expireAll expires the Timeouts that the shard has collected and that Stop has not cancelled.
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

// goroutineID returns the number of the calling goroutine. The runtime only reports it at the
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
