package wheel

import (
	"log/slog"
	"runtime"
	"sync/atomic"
)

// liveLimit is how many Timers a process may have before it is told that they are meant to be shared. It is Netty's number.
const liveLimit = 64

var (
	liveTimers atomic.Int64
	liveWarned atomic.Bool
)

// A leak tells what became of a Timer that nobody has stopped.
type leak struct {
	cleanup runtime.Cleanup
	garbage atomic.Bool
	over    atomic.Bool // it is not counted as live any more
}

// watch counts a Timer as live until it is stopped or garbage.
func (l *leak) watch(t *Timer) {
	if n := liveTimers.Add(1); n > liveLimit && liveWarned.CompareAndSwap(false, true) {
		t.cfg.Logger.Warn("many timers are alive: one serves any number of timeouts, share it", "timers", n)
	}
	where := ""
	if t.cfg.DetectLeaks {
		var trace [4096]byte
		where = string(trace[:runtime.Stack(trace[:], false)])
	}
	l.cleanup = runtime.AddCleanup(t, func(c *core) { c.leak.dropped(c, c.cfg.Logger, where) }, t.core)
}

// stopped is called by Stop.
func (l *leak) stopped() {
	l.cleanup.Stop()
	if l.over.CompareAndSwap(false, true) {
		liveTimers.Add(-1)
	}
}

// dropped is called once nothing refers to the Timer.
func (l *leak) dropped(c *core, logger *slog.Logger, where string) {
	if !l.over.CompareAndSwap(false, true) {
		return
	}
	liveTimers.Add(-1)
	if where != "" {
		logger.Error("a timer became garbage without Stop", "pending", (&Timer{c}).Pending(), "made", where)
	}
	l.garbage.Store(true)
	c.wakeDriver()
}

// abandoned ends a Timer that is garbage and has nothing to do, and reports whether it did. A task of a periodic Timeout
// that an executor runs is something to do: the Timeout comes back.
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
	c.stopped = all == 0 && c.busy.Load() == 0 // in this order: what is pending may begin to run meanwhile
	for _, s := range c.shards {
		s.closed.Store(c.stopped)
		s.ended = c.stopped
	}
	return c.stopped
}
