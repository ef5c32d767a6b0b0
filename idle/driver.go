package idle

import (
	"context"
	"errors"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
)

// pause is the time between two tasks on a loop that is behind. In this time the loop serves its
// sockets. A task that posts the next one itself would stop all I/O: gnet runs its task queue until
// the queue is empty. The slowest living connection waits twice as long while 15,000 dead
// connections are closed, if the pause is 0.1 ms and a task takes up to 2 ms. If the pause is 1 ms,
// closing takes 1.5 times as long (BenchmarkMassExpiry).
const pause = 200 * time.Microsecond

// spareLoops is the least number of loops without connections that are kept. Otherwise single
// connections to one event loop after another would each need a new loop.
const spareLoops = 16

// A driver is the goroutine that moves the clock and posts a task to each loop that has something
// due. A Reaper has one while it has connections. The driver needs no signal from an engine: gnet
// closes all connections of an event loop before the loop ends, and the last connection to close
// stops the driver and waits for it. So no task is posted to an engine that has ended. The
// descriptor that wakes such an engine may have been reused.
type driver struct {
	stop chan struct{}
	done chan struct{}
}

// join returns the loop of c, a new connection. The first connection of all starts the driver.
//
// If most of the loops have no connections, join drops these loops. Otherwise loops of ended
// engines would be kept for ever. An event loop that still runs gets a new loop.
func (r *Reaper) join(c gnet.Conn) *loop {
	if l := r.registry.Load().find(c.EventLoop()); l != nil && l.open > 0 {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.registry.Load().find(c.EventLoop())
	if l == nil {
		r.loops++
		l = newLoop(r, c.EventLoop(), r.loops)
		known := r.registry.Load().loops
		loops := append(make([]*loop, 0, len(known)+1), l)
		for _, other := range known {
			if other.live || len(known) < 2*r.live+spareLoops {
				loops = append(loops, other)
			} else {
				r.past.Add(other.published.read())
				r.pastClosed = counts.Newest(append(r.pastClosed, other.closed.Read()...), r.settings.Load().cfg.KeepClosed)
			}
		}
		r.registry.Store(newRegistry(loops))
	}
	if l.live { // its last connections are being refused
		return l
	}
	l.live = true
	r.live++
	if r.driver == nil {
		_, now := r.clock.Move() // it stood still without connections
		r.monitor.Resume(now)
		r.driver = &driver{stop: make(chan struct{}), done: make(chan struct{})}
		r.lag.expect(r.clock.Elapsed().Add(r.untilTick()))
		r.startDriver(r.driver)
	}
	return l
}

// retire is called when a loop has lost its last connection. If no loop has connections, it stops
// the driver and waits for it.
func (r *Reaper) retire(l *loop) {
	r.mu.Lock()
	l.live = false
	r.live--
	var last *driver
	if r.live == 0 {
		last, r.driver = r.driver, nil
		close(last.stop)
	}
	r.mu.Unlock()
	if last != nil {
		<-last.done
	}
}

// continueSoon requests another round before the next tick.
func (r *Reaper) continueSoon() {
	select {
	case r.more <- struct{}{}:
	default:
	}
}

func (r *Reaper) drive(d *driver) {
	defer close(d.done)
	timer := time.NewTimer(r.untilTick())
	defer timer.Stop()
	soon := false
	for {
		select {
		case <-d.stop:
			return
		case <-r.more:
			if !soon { // the first of several requests sets the time
				timer.Reset(min(pause, r.untilTick()))
				soon = true
			}
			continue
		case <-timer.C:
		}
		r.round()
		timer.Reset(r.untilTick())
		soon = false
	}
}

// untilTick returns the time until the next multiple of the tick.
func (r *Reaper) untilTick() time.Duration {
	now, tick := r.clock.Elapsed(), r.clock.Tick()
	return now.Truncate(tick).Add(tick).Sub(now)
}

// round moves the clock and posts a task to each loop that has something due.
func (r *Reaper) round() {
	found, err := r.moveAndPost()
	if err != nil {
		r.warn(&r.warnings.posting, "posting tasks to event loops", "error", err)
	}
	r.report(found)
	if r.undated.Load() {
		r.warnedUndated.Do(r.warnUndated)
	}
	if r.foreign.Load() != nil {
		r.warnedForeign.Do(r.warnForeign)
	}
}

func (r *Reaper) moveAndPost() (found outage.Finding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	set, loops := r.settings.Load(), r.registry.Load().loops
	if from, to := r.clock.Move(); from != to {
		found = r.monitor.Step(from, to, r.lastHeard(loops, to), r.own.extend(set.rule))
	}
	r.lag.ran(r.clock.Elapsed(), r.untilTick())
	now, state := int64(r.clock.Read()), r.monitor.State()
	crowded := r.shouldShed() || r.outputIsHigh()
	for _, l := range loops {
		count := state.Count != nil && l.followedState.Load() != state
		if l.live && (crowded || count || l.dueAt.Load() <= now || l.version.Load() != set.version) {
			errs = append(errs, r.post(l))
		}
	}
	return found, errors.Join(errs...)
}

// post posts a task to a loop that has connections, unless a task is on its way.
func (r *Reaper) post(l *loop) error {
	if l.posted.Swap(true) {
		return nil
	}
	l.postedAt.Store(int64(r.clock.Elapsed()))
	err := l.el.Execute(context.Background(), gnet.RunnableFunc(l.run))
	if err != nil {
		l.posted.Store(false)
	}
	return err
}

// lastHeard returns the latest instant at which a peer may have been heard.
func (r *Reaper) lastHeard(loops []*loop, now mono.Time) mono.Time {
	last := int64(0)
	for _, l := range loops {
		last = max(last, l.heardAt.Load())
	}
	if last == 0 {
		return 0
	}
	return r.clock.Before(mono.Stamp(last), now)
}

// warnUndated logs which limits do not work because the kernel does not date bytes.
func (r *Reaper) warnUndated() {
	r.settings.Load().cfg.Logger.Warn("the kernel does not report when the bytes of some connections arrived and were sent, " +
		"as on unix sockets, in gVisor and on systems other than Linux: " +
		"they are never write idle, AllTimeout counts their reads, and MinRate does not find them slow")
}

// report logs a finding of the Monitor.
func (r *Reaper) report(f outage.Finding) {
	switch {
	case f.Held > 0:
		r.warn(&r.warnings.hold, "nothing is heard from connections that were busy until now: "+
			"verdicts about peers are held", "silent", f.Held)
	case f.Outage.Length > 0 && f.Silent:
		r.warn(&r.warnings.outage, "the silence of all connections is over: "+
			"verdicts about peers are put off by its length", "outage", f.Outage.Length)
	case f.Outage.Length > 0:
		r.warn(&r.warnings.outage, "the server stood still: "+
			"verdicts about peers are put off by the length of the outage", "outage", f.Outage.Length)
	}
}

// lagWindow is the length of a window. A lag is remembered for one to two windows, which is longer
// than the usual time between two scrapes of a monitor.
const lagWindow = 10 * time.Second

// A lag remembers the greatest delay of the driver.
type lag struct {
	due     mono.Time // the time of the next round
	longest mono.Longest
}

// expect is called when the driver starts. Nothing has waited for it until now.
func (l *lag) expect(due mono.Time) { l.due = due }

// ran is called after a round. The next round is due after the given time.
func (l *lag) ran(at mono.Time, next time.Duration) {
	l.longest.Add(at.Sub(l.due), at, lagWindow)
	l.due = at.Add(next)
}

// worst returns the greatest delay of the last two windows. It includes the present delay of a
// driver that runs.
func (l *lag) worst(at mono.Time, runs bool) time.Duration {
	if runs {
		l.longest.Add(at.Sub(l.due), at, lagWindow)
	}
	return l.longest.Worst(at, lagWindow)
}
