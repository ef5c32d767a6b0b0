package wheel

import (
	"reflect"
	"sync"
	"time"
)

// A slowRule counts slow runs per minute, as XXL-JOB does for its two trigger pools.
type slowRule struct {
	cfg *TimerConfig

	mu     sync.Mutex
	minute int64       // guarded by mu; that of counts
	counts map[any]int // guarded by mu
}

func (r *slowRule) init(cfg *TimerConfig) { r.cfg = cfg }

// applies reports whether a Timeout belongs to the SlowExecutor now.
func (r *slowRule) applies(t *Timeout) bool {
	if r.cfg.SlowExecutor == nil {
		return false
	}
	key := r.key(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(t.shard.core)
	return r.counts[key] > r.cfg.SlowLimit
}

// count notes a slow run.
func (r *slowRule) count(t *Timeout) {
	if r.cfg.SlowExecutor == nil {
		return
	}
	key := r.key(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(t.shard.core)
	r.counts[key]++
}

// turn forgets the counts of an earlier minute.
func (r *slowRule) turn(c *core) {
	if minute := c.now() / int64(time.Minute); r.counts == nil || minute != r.minute {
		r.minute, r.counts = minute, map[any]int{}
	}
}

func (r *slowRule) key(t *Timeout) any {
	if r.cfg.SlowKey != nil {
		return r.cfg.SlowKey(t)
	}
	if v := reflect.ValueOf(t.task); v.Kind() == reflect.Func {
		return v.Pointer()
	}
	return reflect.TypeOf(t.task)
}

// tookLong reports a slow run.
func (c *core) tookLong(t *Timeout, took time.Duration) {
	c.tally.slow.Add(1)
	c.slow.count(t)
	if c.cfg.OnSlow != nil {
		c.cfg.OnSlow(t, took)
	} else {
		c.tally.warn(c, "a task was slow", "took", took)
	}
}
