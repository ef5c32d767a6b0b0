package timer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/wheel"
)

var (
	// ErrShutdown is returned by a Timer after Shutdown.
	ErrShutdown = errors.New("timer: the timer is shut down")
	// ErrTooManyPending is returned while Config.MaxPending Timeouts are pending.
	ErrTooManyPending = errors.New("timer: too many pending timeouts")

	errNilTask = errors.New("timer: the task is nil")
)

// A Config configures a Timer. The zero value is a Timer with a tick of 10 ms that runs tasks on
// its own goroutine.
type Config struct {
	// Tick is the precision: a task begins at most one tick late, and never early. If zero, the
	// default of 10 ms is used. Must not be negative.
	Tick time.Duration
	// MaxPending limits the number of pending Timeouts, see [Timer.Pending]. If zero, there is no
	// limit. Must not be negative.
	MaxPending int

	// Executor runs tasks. It calls run on any goroutine, now or later, and returns nil; or it
	// returns an error and never calls run. run does not panic. The Submit of an ants.Pool is an
	// executor. An Executor must not block, because that delays all other Timeouts. If it returns
	// an error or panics, the Timer logs a warning and tries again after 100 ms. Before that, a run
	// of the executor that ends goes on with tasks that it has refused, in their order, for up to
	// 100 ms in all. A Timeout in the queue of an executor is pending: it can be stopped and reset.
	// If nil, tasks run one after the other on the goroutine of the Timer, and each task delays the
	// next.
	Executor func(run func()) error
	// SlowExecutor runs the tasks that were slow more than 10 times within a minute, until the end
	// of that minute, so that slow tasks only delay other slow tasks. Closures of one function
	// literal count together. If nil, Executor runs all tasks.
	SlowExecutor func(run func()) error
	// SlowAfter is the time after which a run is slow. A warning is logged when a task or an
	// executor has occupied the goroutine of the Timer for once to twice that time. If zero, the
	// default of 500 ms is used. Must not be negative.
	SlowAfter time.Duration

	// SkipAfter is the lateness above which a run is skipped, because the process was stopped, a
	// task has blocked the Timer, or an Executor refuses tasks. The time in the queue of an
	// Executor does not count. A skipped Timeout of AfterFunc ends, as does an Idle; one of Every
	// returns to its grid. If zero, no run is skipped, however late. Must not be negative.
	SkipAfter time.Duration

	// Logger gets errors and warnings: panics of tasks, tasks that block the Timer, refused tasks,
	// skipped runs, a Timer that is garbage without Shutdown, and more than 64 Timers. Warnings of
	// one kind are logged at most once a second. If nil, slog.Default is used.
	Logger *slog.Logger
}

// check sets defaults and returns all errors in a Config.
func (cfg *Config) check() error {
	var errs []error
	for _, d := range []struct {
		name   string
		value  *time.Duration
		preset time.Duration
	}{
		{"Tick", &cfg.Tick, 10 * time.Millisecond},
		{"SlowAfter", &cfg.SlowAfter, 500 * time.Millisecond},
		{"SkipAfter", &cfg.SkipAfter, 0},
	} {
		if *d.value = cmp.Or(*d.value, d.preset); *d.value < 0 {
			errs = append(errs, fmt.Errorf("timer: %s is %v, must not be negative", d.name, *d.value))
		}
	}
	if cfg.MaxPending < 0 {
		errs = append(errs, fmt.Errorf("timer: MaxPending is %d, must not be negative", cfg.MaxPending))
	}
	return errors.Join(errs...)
}

// A Timer is a facility that runs tasks after delays, for any goroutine. Create one with [New] and
// end it with Shutdown. One Timer serves a process. Safe for concurrent use.
type Timer struct {
	core *core
	leak runtime.Cleanup
}

// A core is the part of a Timer to which its goroutine and its Timeouts refer, so that a Timer
// without references is garbage.
type core struct {
	cfg    Config    // immutable
	origin time.Time // immutable; deadlines count from here
	shards []*shard  // immutable
	near   sync.Pool // has a *shard for each processor, so that two processors rarely share one

	closed bool          // guarded by the mu of each shard: Shutdown holds all of them
	uses   atomic.Int64  // 1 until Shutdown, and 1 for each batch and each run
	quiet  chan struct{} // closed when uses is 0

	wakeAt   atomic.Int64 // the driver wakes up then, or earlier; lowered with mu only
	wake     chan struct{}
	stopping chan struct{}  // closed by Shutdown
	driver   sync.WaitGroup // the goroutine of the driver
	mu       sync.Mutex     // taken after the mu of a shard
	driving  bool           // guarded by mu; there is a driver
	pending  int            // guarded by mu; the number of pending Timeouts, if it is limited
	due      []*Timeout     // owned by the driver; the Timeouts to dispatch
	next     int            // owned by the driver; index of the next one in due

	idles idleClock

	usual, slowExecutor executor // of the Config

	slow     slowRule
	watchdog watchdog
	warnings warnings
}

// New returns a Timer, or an error that names all mistakes in cfg. The Timer has a goroutine only
// while something is pending.
func New(cfg Config) (*Timer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &core{
		cfg: cfg, origin: time.Now(), quiet: make(chan struct{}),
		wake: make(chan struct{}, 1), stopping: make(chan struct{}),
	}
	c.usual.submit, c.slowExecutor.submit = cfg.Executor, cfg.SlowExecutor
	for range min(4*runtime.GOMAXPROCS(0), maxShards) {
		w, err := wheel.New[*Timeout](cfg.Tick)
		if err != nil {
			return nil, fmt.Errorf("timer: %w", err)
		}
		c.shards = append(c.shards, &shard{core: c, wheel: w})
	}
	var turn atomic.Uint32
	c.near.New = func() any { return c.shards[turn.Add(1)%uint32(len(c.shards))] }
	c.uses.Store(1)
	c.wakeAt.Store(never)
	c.watchdog.init(c)
	t := &Timer{core: c}
	t.leak = c.watchLeak(t)
	return t, nil
}

// maxShards bounds the memory of a Timer: a shard takes 23 KiB.
const maxShards = 64

// AfterFunc runs a task once after a delay. With a delay of zero or less the task is due at the
// next tick. It returns ErrShutdown after Shutdown, ErrTooManyPending at the limit, and an error if
// the task is nil.
func (t *Timer) AfterFunc(d time.Duration, task func()) (*Timeout, error) {
	return t.core.add(d, 0, task)
}

// Every runs a task once per period, at a fixed rate: the first run is after one period, or when
// [Timeout.Reset] says, and the others follow on a grid from there that does not drift. Runs never
// overlap. A run that is late, or takes longer than a period, is not made up for: the next one is
// at the next point of the grid, and Stats.Missed counts the points between them. A task that
// panics does not run again.
//
// Every returns the errors of AfterFunc, and one if the period is shorter than a tick.
func (t *Timer) Every(period time.Duration, task func()) (*Timeout, error) {
	return t.core.addPeriodic(period, period, task)
}

// EveryAfter runs a task repeatedly with a fixed delay: the first run is after one pause, and each
// other run is a pause after the end of the run before. Otherwise it is like Every.
func (t *Timer) EveryAfter(pause time.Duration, task func()) (*Timeout, error) {
	return t.core.addPeriodic(pause, -pause, task)
}

func (c *core) addPeriodic(d, period time.Duration, task func()) (*Timeout, error) {
	if d < c.cfg.Tick {
		return nil, fmt.Errorf("timer: the period is %v, must be at least the tick of %v", d, c.cfg.Tick)
	}
	return c.add(d, period, task)
}

func (c *core) add(d, period time.Duration, task func()) (*Timeout, error) {
	if task == nil {
		return nil, errNilTask
	}
	s := c.nearShard()
	t := &Timeout{shard: s, task: task, period: period, deadline: c.in(d)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.arm(t); err != nil {
		return nil, err
	}
	s.file(t, t.deadline)
	return t, nil
}

// nearShard returns the shard that was taken last on the same processor.
func (c *core) nearShard() *shard {
	s := c.near.Get().(*shard)
	c.near.Put(s)
	return s
}

// now returns the monotonic time since New.
func (c *core) now() time.Duration { return time.Since(c.origin) }

// in returns the deadline after a delay from now.
func (c *core) in(d time.Duration) time.Duration { return after(c.now(), d) }

// after returns the deadline after a delay from an instant.
func after(now, d time.Duration) time.Duration { return now + min(max(d, 0), lastDeadline-now) }

// lastDeadline is 146 years after New. Longer delays end there.
const lastDeadline = 1 << 62

// Pending returns the number of pending Timeouts: those that wait for their deadline or in the
// queue of an executor, and those that are running and will run again.
func (t *Timer) Pending() int { return t.Stats().Pending }

// Shutdown stops the Timer, stops all pending Timeouts, and waits for running tasks, also in
// executors, and for the goroutine of the Timer. It returns the Timeouts that it has stopped before
// they ran, in no particular order; a Timeout of Every that is running is not among them. No task
// begins after Shutdown was called, and none runs after it has returned nil.
//
// If ctx is done first, Shutdown returns the Timeouts and an error that wraps the cause. A second
// call waits as well and returns no Timeouts. A task that calls Shutdown waits for itself until ctx
// is done: call Shutdown on another goroutine.
func (t *Timer) Shutdown(ctx context.Context) ([]*Timeout, error) {
	c := t.core
	left, first := c.close()
	if first {
		t.leak.Stop()
		liveTimers.Add(-1)
		c.release()
	}
	runtime.KeepAlive(t) // so that the cleanup does not run as well
	select {
	case <-c.quiet:
	default:
		select {
		case <-c.quiet:
		case <-ctx.Done():
			return left, fmt.Errorf("timer: tasks are still running: %w", context.Cause(ctx))
		}
	}
	c.driver.Wait() // runs no task and ends
	return left, nil
}

// close closes all shards at the same time and stops the pending Timeouts. It returns those that
// have a run ahead and are not periodic ones that are running. It reports whether this is the first
// call.
func (c *core) close() (left []*Timeout, first bool) {
	c.lockAll()
	defer c.unlockAll()
	if c.closed {
		return nil, false
	}
	c.closed = true
	close(c.stopping)
	for _, s := range c.shards {
		s.wheel.Advance(math.MaxInt64, math.MaxInt, func(_ wheel.Handle, t *Timeout) { s.submit(t) })
		if s.idles != nil {
			s.idles.Advance(math.MaxInt64, math.MaxInt, func(_ wheel.Handle, i *Idle) { s.takeIdle(i); s.submit(&i.timeout) })
		}
		for _, t := range slices.Backward(s.active) {
			if t.armed {
				s.stop(t)
				if t.place != running || t.period == 0 {
					left = append(left, t)
				}
			}
			if t.place != running {
				s.retire(t)
			}
		}
	}
	return left, true
}

func (c *core) lockAll() {
	for _, s := range c.shards {
		s.mu.Lock()
	}
}

func (c *core) unlockAll() {
	for _, s := range c.shards {
		s.mu.Unlock()
	}
}

// retain makes Shutdown wait for a release. The caller holds the mu of a shard with an armed
// Timeout, so that the Timer is not closed.
func (c *core) retain() { c.uses.Add(1) }

func (c *core) release() {
	if c.uses.Add(-1) == 0 {
		close(c.quiet)
	}
}
