package timer

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// liveLimit is the number of Timers in a process above which a warning is logged, as in Netty.
const liveLimit = 64

var (
	liveTimers atomic.Int64
	liveWarned atomic.Bool
)

// watchLeak counts a Timer as live until Shutdown, and logs an error if it is garbage before.
func (c *core) watchLeak(t *Timer) runtime.Cleanup {
	if n := liveTimers.Add(1); n > liveLimit && liveWarned.CompareAndSwap(false, true) {
		c.log().Warn("many timers are alive: one serves any number of timeouts, share it", "timers", n)
	}
	made := string(debug.Stack())
	return runtime.AddCleanup(t, func(c *core) {
		liveTimers.Add(-1)
		c.log().Error("a timer became garbage without Shutdown", "pending", c.stats().Pending, "made", made)
	}, c)
}

func (c *core) log() *slog.Logger {
	if c.cfg.Logger != nil {
		return c.cfg.Logger
	}
	return slog.Default()
}
