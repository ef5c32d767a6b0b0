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
	// ErrTooManyPending is returned by NewTimeout while as many Timeouts are pending as TimerConfig.MaxPending allows.
	ErrTooManyPending = errors.New("wheel: too many pending timeouts")
	// ErrStopInTask is returned by Stop when a task calls it on the goroutine of the Timer, which would wait for itself.
	ErrStopInTask = errors.New("wheel: a task has called Stop on the goroutine of its timer: call it from another goroutine")
	// ErrNoTask is returned for a nil Task or TaskFunc.
	ErrNoTask = errors.New("wheel: no task")
)

// A TimerConfig says how a Timer works. The zero value is a Timer with a tick of 10 ms that runs tasks inline.
type TimerConfig struct {
	// Tick is the precision: a task runs at most one tick late, and never early. If zero, 10 ms. Must not be negative.
	Tick time.Duration
	// Slots is the number of slots of the lowest level, a power of two; see [New]. If zero, 1024.
	Slots int
	// MaxPending is how many Timeouts may be pending at a time; a periodic one counts while it runs as well. If zero, any number.
	// Must not be negative.
	MaxPending int

	// Executor is where tasks run: it calls run, which does not panic, on a goroutine of its choice, now or later, or
	// returns an error and does not. It must not block, which would hold up all others: [Pool.Execute] is an executor, and so
	// is the Submit of an ants.Pool that was made with WithNonblocking. A Timeout that waits there is still pending: it can be
	// cancelled and reset. DropMissed does not ask how long it has waited there. The queue should have room for what may
	// expire at once. If nil, tasks run on the goroutine of the Timer, one after the other: then they must be short, since each delays
	// those behind it.
	Executor func(run func()) error
	// OnRefused is called on the goroutine of the Timer when an executor has returned an error or panicked. It returns
	// after how long to try again, at least a tick, which is its deadline from then on; if negative, the Timeout is cancelled,
	// and what becomes of it is up to the hook. If nil, a warning is logged, at most one per second, and it is tried again
	// after 100 ms.
	OnRefused func(t *Timeout, err error) (retry time.Duration)

	// SlowAfter is how long a task may take before it counts as slow. If zero, none does. Must not be negative.
	SlowAfter time.Duration
	// OnSlow is called after a slow task, where the task has run, with how long it took. If nil, a warning is logged, at most
	// one per second.
	OnSlow func(t *Timeout, took time.Duration)
	// SlowExecutor runs tasks that were slow more than SlowLimit times within a minute, until the minute is over: the slow
	// keep the slow waiting, and nobody else. Minutes are counted from when the Timer was made. What it refuses is treated as
	// what Executor refuses. If nil, there is no such rule. The idea is that of XXL-JOB's trigger pools.
	SlowExecutor func(run func()) error
	// SlowLimit is the number for SlowExecutor. If zero, 10. Must not be negative.
	SlowLimit int
	// SlowKey says which Timeouts count together for SlowExecutor; it must return something comparable. If nil, those that
	// run the same code: functions made at the same place, or methods of the same type.
	SlowKey func(*Timeout) any

	// Missed says what to do with a Timeout that is more than MissedAfter late, since the process was stopped or a task
	// has blocked the Timer. The default is to run it now.
	Missed MissedPolicy
	// MissedAfter is the lateness from which on a Timeout counts as missed. If zero, 5 s. Must not be negative.
	MissedAfter time.Duration
	// OnMissed is called on the goroutine of the Timer for each Timeout that was dropped by DropMissed, once for all missed runs
	// of a periodic one. If nil, a warning is logged, at most one per second.
	OnMissed func(t *Timeout, late time.Duration)

	// OnPanic is called where the task ran, with what it panicked with, or with an error if it has called runtime.Goexit. If nil,
	// an error is logged, by slog.Default if there is no Logger: a panic is not swallowed. Panics of hooks are recovered and
	// logged in the same way.
	OnPanic func(t *Timeout, value any, stack []byte)

	// DetectLeaks logs an error with the place where the Timer was made if it becomes garbage without Stop, by slog.Default if
	// there is no Logger. It is not garbage as long as anything refers to it that lives: a hook of a Timer that was started, or
	// a task that is pending, does. Timeouts do not. Its goroutine ends when nothing is pending.
	DetectLeaks bool
	// Logger gets what no hook takes, and a warning when the process has more than 64 Timers. If nil, nothing is logged but
	// panics and leaks.
	Logger *slog.Logger
}

// A MissedPolicy says what becomes of a Timeout that is very late.
type MissedPolicy int

const (
	// RunMissed runs it at once.
	RunMissed MissedPolicy = iota
	// DropMissed cancels it and reports it. A periodic one goes on: at a fixed rate with the next run whose time has not come.
	DropMissed
)

func (cfg *TimerConfig) withDefaults() {
	cfg.Tick = cmp.Or(cfg.Tick, 10*time.Millisecond)
	cfg.Slots = cmp.Or(cfg.Slots, 1024)
	cfg.SlowLimit = cmp.Or(cfg.SlowLimit, 10)
	cfg.MissedAfter = cmp.Or(cfg.MissedAfter, 5*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
}

// check returns what is wrong with a configuration, all at once. What New checks is not repeated.
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

// A Timer is the facility that runs tasks after a delay: the contract of Netty's HashedWheelTimer over the Wheel of this
// package. It has one goroutine, which sleeps until something may be due and ends with Stop. Create one with [NewTimer]; one
// Timer serves any number of Timeouts, so a process needs one or a few.
//
// Tasks run at most one tick late, plus what the tasks before them take and what the scheduler of the operating system
// adds; never early.
//
// Safe for concurrent use. All methods may be called from tasks, but for Stop, see there.
type Timer struct {
	*core
}

// core is what the goroutine of a Timer refers to, so that a Timer that was forgotten can be told from one in use.
type core struct {
	cfg    TimerConfig // immutable
	origin time.Time   // immutable
	self   weak.Pointer[Timer]

	shards []*shard  // immutable; their number is a power of two
	hints  sync.Pool // of *hint, one per processor
	handed atomic.Uint32

	limited   atomic.Int64 // pending ones, if there is a maximum
	wakeBelow atomic.Int64 // a deadline below must wake the driver
	wake      chan struct{}

	mu       sync.Mutex
	started  bool          // guarded by mu
	stopped  bool          // guarded by mu
	stopping chan struct{} // closed by Stop
	done     chan struct{} // closed by the driver
	running  atomic.Bool   // the driver was started, for those who need not lock mu
	driver   atomic.Uint64 // id of its goroutine

	queue   queue        // what executors hold
	busy    atomic.Int64 // executors that are running a task
	calling atomic.Bool  // the driver runs tasks or hands them to executors
	ended   atomic.Bool  // nothing is pending any more, and never will be
	slow    slowRule
	tally   tally
	leak    *leak // immutable
}

// NewTimer returns a Timer that is started by the first NewTimeout, or an error that names all that is wrong with cfg.
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

// NewTimeout schedules a task to run once after a delay. Zero or a negative one is due at the next tick; one beyond the
// range, which is 73 years from when the Timer was made, does not come.
//
// It returns ErrStopped after Stop, ErrTooManyPending at the maximum, and ErrNoTask for nil; then nothing is counted.
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
		timeout = newTimeout(task, deadline) // the other one lies in an inbox
	}
	if !c.running.Load() {
		c.start()
	}
	c.wakeFor(deadline)
	runtime.KeepAlive(t) // not garbage before it has something to do
	return timeout, nil
}

func newTimeout(task Task, deadline time.Duration) *Timeout {
	t := &Timeout{task: task}
	t.word.Store(newWord(deadline, pending) | newBit)
	return t
}

// isStopped reports whether nothing will be accepted any more, which a Timer that may be garbage has to think about.
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

// A hint says which shard a processor uses, and how often it has. A sync.Pool keeps one for each, without a lock.
type hint struct{ shard, uses uint32 }

// accept gives a new Timeout to a shard that most likely no other goroutine uses now.
func (c *core) accept(t *Timeout) bool {
	h, _ := c.hints.Get().(*hint)
	if h == nil {
		n := c.handed.Add(1)
		h = &hint{shard: n, uses: n} // not all from 0: the pool may lose hints before they have come to readAtOnce
	}
	h.uses++
	t.shard = c.shards[h.shard%uint32(len(c.shards))]
	accepted, contended := t.shard.accept(t, h.uses%readAtOnce == 0)
	if contended {
		h.shard++ // two processors have come to share one
	}
	c.hints.Put(h)
	return accepted
}

// now returns the time since the Timer was made. It is monotonic.
func (c *core) now() time.Duration { return time.Since(c.origin) }

func (c *core) deadlineIn(delay time.Duration) time.Duration { return after(c.now(), delay) }

// after returns the deadline that is a delay after an instant.
func after(now, delay time.Duration) time.Duration { return now + min(max(delay, 0), never-now) }

const endOfTime = math.MaxInt64

// Start starts the goroutine, which NewTimeout does otherwise. It returns ErrStopped after Stop.
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

// Pending returns how many Timeouts are pending: scheduled or waiting in an executor, and neither running nor cancelled.
func (t *Timer) Pending() int {
	return t.pendingNow()
}

func (c *core) pendingNow() int {
	pending := int64(0)
	for _, s := range c.shards {
		n, _, _ := s.counts()
		pending += n
	}
	if c.ended.Load() { // what has been cancelled may be on its way to be counted
		return 0
	}
	return int(pending)
}

// Stop ends the Timer and waits for its goroutine, that is, for a task that runs there. It returns the Timeouts that had
// neither run nor been cancelled before, in no particular order; they are cancelled, and their tasks told so if they are
// CancelTasks. No task begins after it has returned; those that an executor is running may go on. A periodic Timeout whose
// task is running is not returned; it is cancelled, and its task told so, at the end of that run.
//
// A second call waits as well and returns what is left, which is nothing. A task on the goroutine of the Timer gets
// ErrStopInTask, and the Timer goes on.
func (t *Timer) Stop() ([]*Timeout, error) { return t.StopContext(context.Background()) }

// StopContext is Stop, but waits no longer than ctx allows. If a task is stuck, it returns the error of ctx, wrapped, with
// all that was pending, cancelled as by Stop; the goroutine ends when that task does.
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

// endAll refuses what comes from now on, and cancels and returns all that is pending.
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
	return &Timer{c} // nobody has the first one any more, so nobody can tell
}
