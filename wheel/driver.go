package wheel

import (
	"bytes"
	"math"
	"runtime"
	"strconv"
	"time"
)

// drive is the goroutine of a Timer. It sleeps until the first slot that holds something comes up.
func (c *core) drive() {
	defer close(c.done)
	c.driver.Store(goroutineID())
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
			var due []*Timeout
			due, more = s.collect(now)
			for _, t := range due {
				c.expire(t) // nothing that Stop has cancelled
			}
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
