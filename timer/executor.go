package timer

import (
	"sync"
	"time"
)

// retryAfter is the delay before a refused Timeout is submitted again. A run that an executor has
// accepted goes on with refused ones for no longer, so that others can use the executor too.
const retryAfter = 100 * time.Millisecond

// An executor is one of the Config, nil for the goroutine of the driver.
type executor struct {
	submit func(run func()) error // immutable

	mu      sync.Mutex // taken after the mu of a shard
	refused []refusal  // guarded by mu; those of the last retryAfter, oldest first
}

// A refusal says that a Timeout was refused, and filed to be submitted again after retryAfter.
type refusal struct {
	timeout *Timeout
	at      time.Duration
}

// noteRefusal makes the next run that ends go on with a Timeout.
func (e *executor) noteRefusal(t *Timeout, now time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = append(e.refused, refusal{t, now})
}

func (e *executor) drop() {
	e.refused[0] = refusal{}
	if e.refused = e.refused[1:]; len(e.refused) == 0 {
		e.refused = nil
	}
}

// forget drops the refusals of Timeouts that were submitted again, or stopped, so that their tasks
// are garbage. It reports whether some are left.
func (e *executor) forget(now time.Duration) (left bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.refused) > 0 && now-e.refused[0].at >= retryAfter {
		e.drop()
	}
	return len(e.refused) > 0
}

// next takes out the oldest refusal, and returns nil if there is none.
func (e *executor) next(now time.Duration) *Timeout {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.refused) > 0 {
		first := e.refused[0]
		e.drop()
		if now-first.at < retryAfter {
			return first.timeout
		}
	}
	return nil
}

// run is the function that an executor calls. It goes on with Timeouts that the executor has
// refused: when they are submitted again it may be full again, however little it had to do
// meanwhile.
func (t *Timeout) run(e *executor) {
	c := t.shard.core
	began := c.now()
	t.runAt(began)
	for now := c.now(); now-began < retryAfter; now = c.now() {
		next := e.next(now)
		if next == nil {
			return
		}
		if next.resubmit() && next.confirm(now) {
			next.runAt(now)
		}
	}
}

// resubmit takes a Timeout out of the wheel, where it is unless something has happened to it.
func (t *Timeout) resubmit() bool {
	s := t.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.place != filed {
		return false
	}
	s.wheel.Cancel(t.handle)
	s.submit(t)
	return true
}
