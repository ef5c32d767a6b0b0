package idle

import (
	"context"
	"errors"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// pause is the time between two tasks on a loop that has more to do than one task may. A task that posts its successor
// itself starves all I/O: gnet runs its task queue until it is empty.
const pause = time.Millisecond

// spareLoops is how many loops without connections are kept at least, so that single connections that come to one loop
// after another need not make each anew.
const spareLoops = 16

// A driver is the goroutine that moves the clock and posts a task to each loop that has something due. There is one per
// Reaper while it has connections, and none otherwise. It needs no signal from an engine: gnet closes all connections of
// a loop before the loop ends, and the last to close stops the driver and waits for it. So no task is ever posted to an
// engine that is gone, whose wake-up descriptor may belong to somebody else by then.
type driver struct {
	stop chan struct{}
	done chan struct{}
}

// join returns the loop of c, which is about to get a connection. The first connection of all starts the driver.
//
// When most of the loops have no connections, those are dropped: loops of engines that are gone would be kept for ever,
// and a loop that is not gone is made again.
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
				r.past.add(other.published.read())
				r.pastClosed = newest(append(r.pastClosed, other.closed.read()...), r.settings.Load().cfg.KeepClosed)
			}
		}
		r.registry.Store(newRegistry(loops))
	}
	l.live = true
	r.live++
	if r.driver == nil {
		r.driver = &driver{stop: make(chan struct{}), done: make(chan struct{})}
		r.lag.expect(r.clock.elapsed() + r.untilTick())
		go r.drive(r.driver)
	}
	return l
}

// leave is called when a loop has lost its last connection. The last one of all stops the driver and waits for it.
func (r *Reaper) leave(l *loop) {
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

// continueSoon asks for another round before the next tick.
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
			if !soon { // several loops may ask: the first sets the time
				timer.Reset(min(pause, r.untilTick()))
				soon = true
			}
			continue
		case <-timer.C:
		}
		if err := r.round(); err != nil {
			r.warn(&r.warnings.posting, "posting tasks to event loops", "error", err)
		}
		timer.Reset(r.untilTick())
		soon = false
	}
}

// untilTick returns the time until the next multiple of the tick.
func (r *Reaper) untilTick() time.Duration {
	return r.clock.tick - r.clock.elapsed()%r.clock.tick
}

// round moves the clock and posts a task to each loop that has something due.
func (r *Reaper) round() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	r.clock.move(r.clock.elapsed)
	r.lag.ran(r.clock.elapsed(), r.untilTick())
	now, version := int64(r.clock.read()), r.settings.Load().version
	crowded := r.isCrowded()
	for _, l := range r.registry.Load().loops {
		if !l.live || !crowded && l.dueAt.Load() > now && l.version.Load() == version || l.posted.Swap(true) {
			continue
		}
		if err := l.el.Execute(context.Background(), gnet.RunnableFunc(l.run)); err != nil {
			l.posted.Store(false)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lagWindow is for how long a lag is remembered at least, and half of how long at most: longer than the time between two scrapes of a
// monitor usually is.
const lagWindow = 10 * time.Second

// A lag remembers how late the driver was.
type lag struct {
	due       time.Duration // when the driver is to run next
	until     time.Duration // end of the window
	now, last time.Duration // the worst of this window, and of the one before
}

// expect is called when the driver begins: nobody has waited for it until now.
func (l *lag) expect(due time.Duration) { l.due = due }

// ran is called when the driver has run, and is to run again after a time.
func (l *lag) ran(at, next time.Duration) {
	l.turn(at)
	l.now = max(l.now, at-l.due)
	l.due = at + next
}

// worst returns the lag of the last windows, and what has come to it if the driver runs and is late now.
func (l *lag) worst(at time.Duration, runs bool) time.Duration {
	l.turn(at)
	if runs {
		l.now = max(l.now, at-l.due)
	}
	return max(l.now, l.last)
}

// turn begins a new window when it is time.
func (l *lag) turn(at time.Duration) {
	if at < l.until {
		return
	}
	if l.last, l.now = l.now, 0; at >= l.until+lagWindow {
		l.last = 0
	}
	l.until = at + lagWindow
}
