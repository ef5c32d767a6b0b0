package timer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/wheel"
)

// An Idle is a task that runs when nothing has called Touch for a time: the end of a session that
// has no connection, of a room without players, of a resource in a pool. [Timer.AfterIdle] makes
// one. Safe for concurrent use.
//
// Touch stores the number of a coarse clock, once in a tick at most, so that it may be called for
// each packet. The Idle stays where it is in the wheel. The Timer looks at it when its time has
// passed, and files it again if it was touched. This is the lazy timer of ReaderIdleTimeoutTask in
// Netty.
type Idle struct {
	clock    *idleClock   // immutable
	touched  atomic.Int64 // the mono.Stamp of the last Touch
	*session              // immutable
}

// A session is the part of an Idle that Touch does not need. Without it, more of the idles that are
// touched fit into the cache of the processor.
type session struct {
	limit   time.Duration // immutable
	timeout Timeout       // what runs in the end

	// Guarded by the mu of the shard.
	handle wheel.Handle // in the wheel of idles, while filed
	filed  bool
	known  mono.Stamp    // touched at a look, after which the clock may have forgotten it
	before mono.Time     // the Touch with that stamp was before
	stood  time.Duration // how long the clock had stood still at the first look after it
}

// AfterIdle runs a task once, when Touch was not called for the given time, which counts from
// AfterIdle at first. The task is never early, and begins at most two ticks late. Times in which
// the goroutine of the Timer was away for more than 20 ms and two ticks do not count, up to 24
// times the given one, so that no session ends because the process was stopped: its packets may
// wait in a socket. Slow tasks on that goroutine count as such times. The Timer wakes up once in
// each tick while an Idle is pending.
//
// AfterIdle returns the errors of AfterFunc, and one if the time is shorter than a tick.
func (t *Timer) AfterIdle(d time.Duration, task func()) (*Idle, error) {
	c := t.core
	switch {
	case task == nil:
		return nil, errNilTask
	case d < c.cfg.Tick:
		return nil, fmt.Errorf("timer: the idle time is %v, must be at least the tick of %v", d, c.cfg.Tick)
	}
	s := c.nearShard()
	i := &Idle{clock: &c.idles, session: &session{limit: min(d, lastDeadline), timeout: Timeout{shard: s, task: task}}}
	i.clock.start(c)
	i.Touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.arm(&i.timeout); err != nil {
		return nil, err
	}
	s.fileIdle(i)
	return i, nil
}

// Touch makes the time count from now on. It has no effect when the time has passed, even if the
// task still waits for an Executor, or after Stop.
func (i *Idle) Touch() {
	now := int64(i.clock.Stamp())
	for old := i.touched.Load(); old < now && !i.touched.CompareAndSwap(old, now); {
		old = i.touched.Load() // a later Touch stays
	}
}

// Stop stops an Idle for good. It reports true if that has prevented the run of its task, like Stop
// of a [Timeout].
func (i *Idle) Stop() bool {
	s := i.timeout.shard
	s.mu.Lock()
	if !i.filed {
		s.mu.Unlock()
		return i.timeout.Stop()
	}
	defer s.mu.Unlock()
	s.idles.Cancel(i.handle)
	s.takeIdle(i)
	s.stop(&i.timeout)
	return true
}

// fileIdle puts an Idle into the wheel of idles.
func (s *shard) fileIdle(i *Idle) {
	if s.idles == nil {
		s.idles, _ = wheel.New[*Idle](s.core.cfg.Tick) // as the one of New
	}
	i.filed = true
	i.handle = s.idles.Schedule(s.core.in(min(i.limit, i.clock.Memory())), i)
	if s.core.idles.pending.Add(1) == 1 {
		s.core.wakeBy(s.core.in(s.core.cfg.Tick))
	}
}

// takeIdle takes note that an Idle is not in the wheel any more.
func (s *shard) takeIdle(i *Idle) {
	i.filed = false
	s.core.idles.pending.Add(-1)
}

// lookAt looks at an Idle when its slot has come up. It files the Idle again, or submits its task.
func (s *shard) lookAt(i *Idle, now time.Duration) {
	if stamp := mono.Stamp(i.touched.Load()); stamp != i.known || i.before == 0 {
		i.known, i.before, i.stood = stamp, i.clock.Before(stamp, i.clock.Elapsed()), i.clock.stood
	}
	left := i.before.Add(i.limit).Sub(i.clock.Read())
	left -= max(i.clock.stood-i.stood-maxStops*min(i.limit, lastDeadline/maxStops), 0)
	if i.known == i.clock.Stamp() { // it may be touched again until the clock moves
		i.before = 0
	}
	if left > 0 {
		s.idles.Reschedule(i.handle, after(now, min(left, i.clock.Memory())))
		return
	}
	s.takeIdle(i)
	i.timeout.deadline = now + left
	s.submit(&i.timeout)
	s.core.due = append(s.core.due, &i.timeout)
}

const (
	// lookTicks is the number of ticks after which an Idle is looked at, even if its time is
	// longer: the clock remembers its moves for so long.
	lookTicks = 1 << 12
	// maxStops is the number of limits that the clock may stand still for an Idle, so that a
	// process which gets only a part of a processor ends sessions too.
	maxStops = 24
	// leastStop is the shortest time for which the clock stands still, besides two ticks. A busy
	// machine has many shorter ones.
	leastStop = 20 * time.Millisecond
)

// An idleClock is the coarse clock of idles. The driver moves it once in each tick while an Idle is
// pending. Other times, and those in which the driver did not run, are cut out of it.
type idleClock struct {
	mono.Clock
	made    sync.Once    // guards Init of the Clock
	pending atomic.Int64 // idles in wheels

	// Owned by the driver.
	seen  time.Duration // the last call of tick with an Idle
	stood time.Duration // what is cut out, a multiple of the tick
}

// start makes the clock of a Timer that has its first Idle.
func (k *idleClock) start(c *core) {
	k.made.Do(func() {
		k.Init(c.cfg.Tick, min(lookTicks, lastDeadline/c.cfg.Tick)*c.cfg.Tick, func() mono.Time { return mono.Time(c.now() - k.stood) })
	})
}

// tick moves the clock, and makes the driver wake up for its next move.
func (k *idleClock) tick(c *core) {
	if k.pending.Load() == 0 {
		return
	}
	now, tick := c.now(), c.cfg.Tick
	if late := now - k.seen - tick; late > max(2*tick, leastStop) {
		k.stood += late / tick * tick
	}
	k.seen = now
	k.Move()
	c.wakeBy(after(now/tick*tick, tick))
}
