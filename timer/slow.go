package timer

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/mono"
)

// slowLimit is the number of slow runs per minute above which SlowExecutor runs a task, as in the
// trigger pools of XXL-JOB.
const slowLimit = 10

// A slowRule counts slow runs per minute by the code of their tasks.
type slowRule struct {
	mu     sync.Mutex      // taken after the mu of a shard
	minute time.Duration   // guarded by mu; minutes since New
	counts map[uintptr]int // guarded by mu; of this minute
}

// turn empties the counts of an earlier minute.
func (r *slowRule) turn(now time.Duration) {
	if minute := now / time.Minute; r.counts == nil || minute != r.minute {
		r.minute, r.counts = minute, map[uintptr]int{}
	}
}

// count records a slow run.
func (r *slowRule) count(t *Timeout, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	r.counts[t.code()]++
}

// executor returns the executor of a task.
func (c *core) executor(t *Timeout, now time.Duration) *executor {
	if c.slowExecutor.submit == nil {
		return &c.usual
	}
	r := &c.slow
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn(now); r.counts[t.code()] > slowLimit {
		return &c.slowExecutor
	}
	return &c.usual
}

// A watchdog logs a task or an executor that occupies the goroutine of the driver for SlowAfter.
type watchdog struct {
	core    *core
	alarm   *time.Timer             // calls look every SlowAfter while the driver dispatches
	timeout atomic.Pointer[Timeout] // being dispatched
	since   atomic.Int64            // beginning of the dispatch, stored before timeout
}

func (w *watchdog) init(c *core) {
	w.core = c
	w.alarm = time.AfterFunc(never, w.look)
	w.alarm.Stop()
}

// begin notes that a Timeout is dispatched from now on.
func (w *watchdog) begin(t *Timeout, now time.Duration) {
	w.since.Store(int64(now))
	w.timeout.Store(t)
}

func (w *watchdog) end() {
	w.alarm.Stop()
	w.timeout.Store(nil)
}

// look logs a dispatch that takes too long. It reads now, timeout and since in this order: if the
// next dispatch begins meanwhile, since is after now.
func (w *watchdog) look() {
	c, now, t := w.core, w.core.now(), w.timeout.Load()
	if t == nil {
		return
	}
	if now-time.Duration(w.since.Load()) >= c.cfg.SlowAfter {
		c.warn(&c.warnings.blocked, "a task blocks the goroutine of its timer and delays all others", "timeout", t)
	}
	w.alarm.Reset(c.cfg.SlowAfter)
}

// warnings has a limiter for each kind of warning.
type warnings struct{ full, refused, skipped, blocked logging.Limiter }

// warn logs a warning, at most once a second per limiter.
func (c *core) warn(limiter *logging.Limiter, message string, args ...any) {
	if limiter.AllowAt(mono.Time(c.now())) {
		c.log().Warn(message, args...)
	}
}
