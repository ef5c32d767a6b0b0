package wheel

import (
	"reflect"
	"sync"
	"time"
)

// A slowRule counts slow runs per minute, as XXL-JOB does for its two trigger pools.
type slowRule struct {
	core *core

	mu     sync.Mutex
	minute time.Duration // guarded by mu; the minute of counts
	counts map[any]int   // guarded by mu
}

// applies reports whether a Timeout runs on the SlowExecutor now.
func (r *slowRule) applies(t *Timeout, now time.Duration) bool {
	if r.core.cfg.SlowExecutor == nil {
		return false
	}
	key := r.key(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	return r.counts[key] > r.core.cfg.SlowLimit
}

// count records a slow run.
func (r *slowRule) count(t *Timeout, now time.Duration) {
	if r.core.cfg.SlowExecutor == nil {
		return
	}
	key := r.key(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	r.counts[key]++
}

// turn clears the counts of an earlier minute.
func (r *slowRule) turn(now time.Duration) {
	if minute := now / time.Minute; r.counts == nil || minute != r.minute {
		r.minute, r.counts = minute, map[any]int{}
	}
}

func (r *slowRule) key(t *Timeout) any {
	if r.core.cfg.SlowKey != nil {
		if key := r.askKey(t); reflect.ValueOf(key).Comparable() {
			return key
		}
	}
	if v := reflect.ValueOf(t.Task()); v.Kind() == reflect.Func {
		return v.Pointer()
	}
	return reflect.TypeOf(t.Task())
}

func (r *slowRule) askKey(t *Timeout) (key any) {
	defer r.core.recoverHook(t)
	return r.core.cfg.SlowKey(t)
}

// tookLong reports a slow run.
func (c *core) tookLong(t *Timeout, took, now time.Duration) {
	c.tally.slow.Add(1)
	c.slow.count(t, now)
	if c.cfg.OnSlow == nil {
		c.tally.slowWarned.warn(c, "a task was slow", "timeout", t, "took", took)
		return
	}
	defer c.recoverHook(t)
	c.cfg.OnSlow(t, took)
}
