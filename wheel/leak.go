package wheel

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"weak"
)

// liveLimit is the number of Timers in a process above which a warning is logged, as in Netty.
const liveLimit = 64

var (
	liveTimers atomic.Int64
	liveWarned atomic.Bool
)

// A leak detects a Timer that became garbage without Stop. It must not refer to the Timer, directly
// or not, since that would keep the Timer alive.
type leak struct {
	cleanup runtime.Cleanup
	core    weak.Pointer[core]
	logger  *slog.Logger
	where   string      // the stack of NewTimer, if leaks are logged
	garbage atomic.Bool // nothing refers to the Timer any more
	over    atomic.Bool // the Timer no longer counts as live
}

// watchLeak counts a Timer as live until it is stopped or garbage.
func watchLeak(t *Timer) *leak {
	l := &leak{core: weak.Make(t.core), logger: t.cfg.Logger}
	loud := l.logger.Enabled(context.Background(), slog.LevelWarn)
	if n := liveTimers.Add(1); n > liveLimit && loud && liveWarned.CompareAndSwap(false, true) {
		l.logger.Warn("many timers are alive: one serves any number of timeouts, share it", "timers", n)
	}
	if t.cfg.DetectLeaks {
		var trace [4096]byte
		l.where = string(trace[:runtime.Stack(trace[:], false)])
	}
	if !loud {
		l.logger = slog.Default()
	}
	l.cleanup = runtime.AddCleanup(t, (*leak).dropped, l)
	return l
}

// stopped is called by Stop.
func (l *leak) stopped() {
	l.cleanup.Stop()
	if l.over.CompareAndSwap(false, true) {
		liveTimers.Add(-1)
	}
}

// dropped is called once nothing refers to the Timer.
func (l *leak) dropped() {
	if !l.over.CompareAndSwap(false, true) {
		return
	}
	liveTimers.Add(-1)
	c := l.core.Value() // nil if the Timer was never started
	if l.where != "" {
		pending := 0
		if c != nil {
			pending = c.pendingNow()
		}
		l.logger.Error("a timer became garbage without Stop", "pending", pending, "made", l.where)
	}
	l.garbage.Store(true)
	if c != nil {
		c.wakeDriver()
	}
}

// abandoned stops a Timer that is garbage and has nothing to do, and reports whether it did. A
// periodic Timeout in an executor is something to do, because it becomes pending again.
func (c *core) abandoned() bool {
	if !c.leak.garbage.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shards {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	all := int64(0)
	for _, s := range c.shards {
		s.closed.Store(true)
		pending, _, _ := s.countsLocked()
		all += pending
	}
	// In this order: a pending task may begin to run meanwhile.
	c.stopped = all == 0 && c.busy.Load() == 0
	for _, s := range c.shards {
		s.closed.Store(c.stopped)
		s.ended = c.stopped
	}
	return c.stopped
}
