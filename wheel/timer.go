package wheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

var (
	// ErrStopped is returned by a Timer that was stopped.
	ErrStopped = errors.New("wheel: timer is stopped")
	// ErrTooManyPending is returned by NewTimeout while as many Timeouts are pending as
	// TimerConfig.MaxPending allows.
	ErrTooManyPending = errors.New("wheel: too many pending timeouts")
	// ErrStopInTask is returned by Stop if a task calls it on the goroutine of the Timer, which
	// would wait for itself.
	ErrStopInTask = errors.New("wheel: a task has called Stop on the goroutine of its timer: call it from another goroutine")
	// ErrNoTask is returned for a nil Task or TaskFunc.
	ErrNoTask = errors.New("wheel: no task")
)

// A TimerConfig configures a Timer. The zero value is a Timer with a tick of 10 ms that runs tasks
// on its own goroutine.
type TimerConfig struct {
	// Tick is the precision: a task runs at most one tick late, and never early. If zero, 10 ms.
	// Must not be negative.
	Tick time.Duration
	// Slots is the number of slots of the lowest level, a power of two; see [New]. If zero, 1024.
	Slots int
	// MaxPending limits the number of pending Timeouts; a periodic one also counts while it runs.
	// If zero, there is no limit. Must not be negative.
	MaxPending int

	// Executor runs tasks: it calls run, which does not panic, on a goroutine of its choice, now or
	// later, or returns an error and does not call it. It must not block, because that delays all
	// other tasks. [Pool.Execute] is an executor, and so is the Submit of an ants.Pool with
	// WithNonblocking. A Timeout that waits in an executor is still pending: it can be cancelled
	// and reset. Its time in the executor does not count for DropMissed. The queue should have room
	// for all tasks that may expire at once. If nil, tasks run on the goroutine of the Timer, one
	// after the other. They must be short then, because each one delays the next.
	Executor func(run func()) error
	// OnRefused is called on the goroutine of the Timer if an executor returns an error or panics.
	// It returns the delay before the next attempt, at least one tick, which sets the new deadline.
	// If it is negative, the Timeout is cancelled, and the hook decides what to do with it. If nil,
	// a warning is logged, at most one per second, and the next attempt is after 100 ms.
	OnRefused func(t *Timeout, err error) (retry time.Duration)

	// SlowAfter is the duration above which a run of a task is slow. If zero, no run is slow. Must
	// not be negative.
	SlowAfter time.Duration
	// OnSlow is called after a slow run, on its goroutine, with its duration. If nil, a warning is
	// logged, at most one per second.
	OnSlow func(t *Timeout, took time.Duration)
	// SlowExecutor runs tasks that were slow more than SlowLimit times within a minute, until the
	// end of that minute, so that slow tasks only delay other slow tasks. Minutes count from
	// NewTimer. If it refuses a task, OnRefused is called as for Executor. If nil, Executor runs
	// all tasks. XXL-JOB's trigger pools work like this.
	SlowExecutor func(run func()) error
	// SlowLimit is the number of slow runs per minute above which SlowExecutor runs a task. If
	// zero,
	// 10. Must not be negative.
	SlowLimit int
	// SlowKey returns the group in which slow runs of a Timeout are counted for SlowExecutor. Its
	// result must be comparable. If nil, Timeouts with the same code form a group: functions made
	// at the same place, or methods of the same type.
	SlowKey func(*Timeout) any

	// Missed is the policy for a Timeout that is more than MissedAfter late, because the process
	// was stopped or a task has blocked the Timer. The default is RunMissed.
	Missed MissedPolicy
	// MissedAfter is the lateness above which a Timeout is missed. If zero, 5 s. Must not be
	// negative.
	MissedAfter time.Duration
	// OnMissed is called on the goroutine of the Timer for each Timeout that DropMissed has
	// dropped, once for all missed runs of a periodic one. If nil, a warning is logged, at most one
	// per second.
	OnMissed func(t *Timeout, late time.Duration)

	// OnPanic is called if a task panics, on its goroutine, with the value of the panic, or with an
	// error if the task has called runtime.Goexit. If nil, an error is logged, by slog.Default if
	// there is no Logger. Panics of hooks are recovered and logged in the same way.
	OnPanic func(t *Timeout, value any, stack []byte)

	// DetectLeaks logs an error with the stack of NewTimer if the Timer becomes garbage without
	// Stop, by slog.Default if there is no Logger. A hook of a started Timer or a pending task that
	// refers to the Timer keeps it alive; a Timeout does not. The goroutine of a Timer that is
	// garbage ends when nothing is pending.
	DetectLeaks bool
	// Logger gets the events without a hook, and a warning if the process has more than 64 Timers.
	// If nil, only panics and leaks are logged.
	Logger *slog.Logger
}

// A MissedPolicy says whether a Timeout that is very late still runs.
type MissedPolicy int

const (
	// RunMissed runs the Timeout at once.
	RunMissed MissedPolicy = iota
	// DropMissed cancels the Timeout and calls OnMissed. A periodic one continues, at a fixed rate
	// with the next run that is not yet due.
	DropMissed
)

func (cfg *TimerConfig) withDefaults() {
	cfg.Tick = cmp.Or(cfg.Tick, 10*time.Millisecond)
	cfg.Slots = cmp.Or(cfg.Slots, 1024)
	cfg.SlowLimit = cmp.Or(cfg.SlowLimit, 10)
	cfg.MissedAfter = cmp.Or(cfg.MissedAfter, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
}

// check returns all errors in a configuration, except for those that New returns.
func (cfg *TimerConfig) check() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("wheel: "+format, args...))
		}
	}
	refuse(cfg.Tick < 0, "Tick is %v, must not be negative", cfg.Tick)
	refuse(cfg.MaxPending < 0, "MaxPending is %d, must not be negative", cfg.MaxPending)
	refuse(cfg.SlowAfter < 0, "SlowAfter is %v, must not be negative", cfg.SlowAfter)
	refuse(cfg.SlowLimit < 0, "SlowLimit is %d, must not be negative", cfg.SlowLimit)
	refuse(cfg.MissedAfter < 0, "MissedAfter is %v, must not be negative", cfg.MissedAfter)
	refuse(cfg.Missed != RunMissed && cfg.Missed != DropMissed, "Missed is %d, must be RunMissed or DropMissed", cfg.Missed)
	refuse(cfg.SlowExecutor != nil && cfg.SlowAfter == 0, "SlowExecutor needs SlowAfter, which says what is slow")
	return errors.Join(errs...)
}

// A Timer is the facility that runs tasks after a delay, with the contract of Netty's
// HashedWheelTimer. It has one goroutine, which sleeps until a task may be due and ends with Stop.
// Create one with [NewTimer]. One Timer serves any number of Timeouts, so a process needs one or a
// few.
//
// Tasks never run early. They run at most one tick late, plus the duration of the tasks before them
// and the delay of the scheduler.
//
// Safe for concurrent use. Tasks may call all methods, except for Stop, see there.
type Timer struct {
	*core
}

// core is the part of a Timer to which its goroutine refers, so that a Timer that is not in use
// becomes garbage.
type core struct {
	cfg    TimerConfig // immutable
	origin time.Time   // immutable
	self   weak.Pointer[Timer]

	shards []*shard  // immutable; their number is a power of two
	hints  sync.Pool // of *hint, one per processor
	handed atomic.Uint32

	limited   atomic.Int64 // pending Timeouts, if there is a maximum
	wakeBelow atomic.Int64 // a deadline below must wake the driver
	wake      chan struct{}

	mu       sync.Mutex
	started  bool          // guarded by mu
	stopped  bool          // guarded by mu
	stopping chan struct{} // closed by Stop
	done     chan struct{} // closed by the driver
	running  atomic.Bool   // the driver was started; readable without mu
	driver   atomic.Uint64 // id of its goroutine

	queue   queue        // Timeouts in executors
	busy    atomic.Int64 // executors that are running a task
	calling atomic.Bool  // the driver runs tasks or hands them to executors
	ended   atomic.Bool  // nothing is pending, and never will be
	slow    slowRule
	tally   tally
	leak    *leak // immutable
}

// NewTimer returns a Timer, or an error that names all mistakes in cfg. The first NewTimeout starts
// its goroutine.
func NewTimer(cfg TimerConfig) (*Timer, error) {
	cfg.withDefaults()
	c := &core{
		cfg: cfg, origin: time.Now(), wake: make(chan struct{}, 1), stopping: make(chan struct{}), done: make(chan struct{}),
	}
	errs := cfg.check()
	for len(c.shards) < runtime.GOMAXPROCS(0) && len(c.shards) < maxShards {
		for range max(1, len(c.shards)) { // double their number
			h, err := newHierarchy(cfg.Tick, cfg.Slots)
			if errs = errors.Join(errs, err); errs != nil {
				return nil, errs
			}
			c.shards = append(c.shards, &shard{core: c, wheel: timeouts{hierarchy: h}})
		}
	}
	c.wakeBelow.Store(math.MinInt64)
	c.slow.core = c
	t := &Timer{c}
	c.self = weak.Make(t)
	c.leak = watchLeak(t)
	return t, nil
}

// maxShards bounds the memory of an empty Timer: 8 KiB each with the default of 1024 slots.
const maxShards = 16

// NewTimeout schedules a task to run once after a delay. With a zero or negative delay the task is
// due at the next tick. With a deadline more than 73 years after NewTimer it never runs.
//
// NewTimeout returns ErrStopped after Stop, ErrTooManyPending at the maximum, and ErrNoTask for
// nil. Such a call changes no counter.
func (t *Timer) NewTimeout(task Task, delay time.Duration) (*Timeout, error) {
	if isNone(task) {
		return nil, ErrNoTask
	}
	c := t.core
	if !c.takePending() {
		return nil, fmt.Errorf("%w: %d", ErrTooManyPending, c.cfg.MaxPending)
	}
	deadline := c.deadlineIn(delay)
	timeout := newTimeout(task, deadline)
	for !c.accept(timeout) {
		if c.isStopped() {
			c.freePending()
			return nil, ErrStopped
		}
		timeout = newTimeout(task, deadline) // the refused one is still in an inbox
	}
	if !c.running.Load() {
		c.start()
	}
	c.wakeFor(deadline)
	runtime.KeepAlive(t) // until the Timeout is scheduled
	return timeout, nil
}

func newTimeout(task Task, deadline time.Duration) *Timeout {
	t := &Timeout{task: task}
	t.word.Store(newWord(deadline, pending) | newBit)
	return t
}

// isStopped reports whether the Timer accepts no Timeouts any more. A Timer that may be garbage
// closes its shards for a moment without being stopped.
func (c *core) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}

// takePending takes one of MaxPending, if there is any; freePending gives one back.
func (c *core) takePending() bool {
	if c.cfg.MaxPending == 0 {
		return true
	}
	for {
		n := c.limited.Load()
		if n >= int64(c.cfg.MaxPending) {
			return false
		}
		if c.limited.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *core) freePending() {
	if c.cfg.MaxPending > 0 {
		c.limited.Add(-1)
	}
}

// A hint is the shard that a processor uses and the number of its uses. A sync.Pool keeps one for
// each processor, without a lock.
type hint struct{ shard, uses uint32 }

// accept adds a new Timeout to a shard that probably no other goroutine is using.
func (c *core) accept(t *Timeout) bool {
	h, _ := c.hints.Get().(*hint)
	if h == nil {
		n := c.handed.Add(1)
		h = &hint{shard: n, uses: n} // spread out: the pool may lose hints before they reach readAtOnce
	}
	h.uses++
	t.shard = c.shards[h.shard%uint32(len(c.shards))]
	accepted, contended := t.shard.accept(t, h.uses%readAtOnce == 0)
	if contended {
		h.shard++ // another processor uses this shard
	}
	c.hints.Put(h)
	return accepted
}

// now returns the monotonic time since NewTimer.
func (c *core) now() time.Duration { return time.Since(c.origin) }

func (c *core) deadlineIn(delay time.Duration) time.Duration { return after(c.now(), delay) }

// after returns the deadline at a delay after an instant.
func after(now, delay time.Duration) time.Duration { return now + min(max(delay, 0), never-now) }

const endOfTime = math.MaxInt64

// Start starts the goroutine before the first NewTimeout. It returns ErrStopped after Stop.
func (t *Timer) Start() error { return t.start() }

func (c *core) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrStopped
	}
	if !c.started {
		c.started = true
		c.running.Store(true)
		go c.drive()
	}
	return nil
}

// Pending returns the number of pending Timeouts: scheduled or waiting in an executor, and neither
// running nor cancelled.
func (t *Timer) Pending() int {
	return t.pendingNow()
}

func (c *core) pendingNow() int {
	pending := int64(0)
	for _, s := range c.shards {
		n, _, _ := s.counts()
		pending += n
	}
	if c.ended.Load() { // some cancelled Timeouts may not be counted yet
		return 0
	}
	return int(pending)
}

// Stop stops the Timer and waits for its goroutine, including a task that it runs. It cancels the
// pending Timeouts and returns them, in no particular order, and calls Cancelled of those tasks
// that are a [CancelTask]. No task begins after Stop has returned, but tasks in an executor may
// still run. A periodic Timeout that is running is not returned; it is cancelled at the end of that
// run.
//
// A second call waits as well and returns no Timeouts. On the goroutine of the Timer, Stop returns
// ErrStopInTask and the Timer continues.
func (t *Timer) Stop() ([]*Timeout, error) { return t.StopContext(context.Background()) }

// StopContext is Stop, except that it waits no longer than ctx allows. If a task does not return,
// StopContext returns the pending Timeouts, cancelled, together with the wrapped error of ctx. The
// goroutine ends when that task returns.
func (t *Timer) StopContext(ctx context.Context) ([]*Timeout, error) {
	c := t.core
	if c.driver.Load() == goroutineID() {
		return nil, ErrStopInTask
	}
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stopping)
		c.leak.stopped()
	}
	started := c.started
	c.mu.Unlock()

	left := c.endAll()
	var err error
	if started {
		err = c.wait(ctx)
	}
	for _, timeout := range left {
		timeout.tellCancelled()
	}
	return left, err
}

// wait waits for the driver.
func (c *core) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	if c.calling.Load() {
		return fmt.Errorf("wheel: a task is still running: %w", context.Cause(ctx))
	}
	<-c.done // it is about to end
	return nil
}

// endAll refuses further Timeouts, and cancels and returns the pending ones.
func (c *core) endAll() (ended []*Timeout) {
	var all []*Timeout
	for _, s := range c.shards {
		all = append(all, s.close()...)
	}
	for _, t := range append(all, c.queue.all()...) {
		if t.cancelPending() {
			ended = append(ended, t)
		}
	}
	c.ended.Store(true)
	return ended
}

// timer returns the Timer of this core.
func (c *core) timer() *Timer {
	if t := c.self.Value(); t != nil {
		return t
	}
	return &Timer{c} // the first one is garbage, so an equal one is as good
}
