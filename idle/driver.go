package idle

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntimer"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/verdict"
)

// pause is the time between two tasks on a loop that is behind. In this time the loop serves its
// sockets. A task that posts the next one itself would stop all I/O: gnet runs its task queue until
// the queue is empty. The slowest living connection waits twice as long while 15,000 dead
// connections are closed, if the pause is 0.1 ms and a task takes up to 2 ms. If the pause is 1 ms,
// closing takes 1.5 times as long.
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
	if l := r.registry.Load().find(c.EventLoop()); l != nil && l.Open > 0 {
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
			if r.live[other] || len(known) < 2*len(r.live)+spareLoops {
				loops = append(loops, other)
			} else {
				r.past.Add(other.published.read())
			}
		}
		r.registry.Store(newRegistry(loops))
	}
	r.live[l] = true
	if r.driver == nil {
		r.watch.Resume() // it stood still without connections
		r.driver = &driver{stop: make(chan struct{}), done: make(chan struct{})}
		r.startDriver(r.driver)
	}
	return l
}

// newLoop returns the loop of an event loop, on its goroutine.
func newLoop(r *Reaper, el gnet.EventLoop, number uint32) *loop {
	l := &loop{clock: &r.watch.Clock, kernel: &r.kernel, el: el, root: rootOfStack(), crowd: &r.crowd}
	l.layers, l.refused = make(layers), make(refusals)
	l.timers = conntimer.New[*conn](r.watch.Clock.Tick())
	l.task.more = r.watch.Wake
	l.outputs.all, l.outputs.largestOfAll, l.outputs.due = &r.output, r.largestOutput, never
	l.task.setDue(never)
	l.Init(&r.watch, number, &port{l, r})
	l.followed()
	return l
}

// largestOutput returns the largest output of a connection of any loop.
func (r *Reaper) largestOutput() (most int64) {
	for _, l := range r.registry.Load().loops {
		most = max(most, l.outputs.mostWaiting.Load())
	}
	return most
}

// retireIfEmpty retires a loop if it has lost its last connection. If no loop has connections, it
// stops the driver and waits for it.
func (r *Reaper) retireIfEmpty(l *loop) {
	if l.Open > 0 || len(l.refused) > 0 {
		return
	}
	r.mu.Lock()
	delete(r.live, l)
	var last *driver
	if len(r.live) == 0 {
		last, r.driver = r.driver, nil
		close(last.stop)
	}
	r.mu.Unlock()
	if last != nil {
		<-last.done
	}
}

func (r *Reaper) drive(d *driver) {
	defer close(d.done)
	r.watch.Drive(d.stop, pause, func() bool {
		r.round()
		return true
	})
}

// round moves the clock and posts a task to each loop that has something due.
func (r *Reaper) round() {
	found, err := r.moveAndPost()
	if err != nil {
		r.watch.Warn(&r.warnings.posting, "posting tasks to event loops", "error", err)
	}
	r.watch.Report(found)
}

func (r *Reaper) moveAndPost() (found outage.Finding, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	set, loops := r.watch.Settings(), r.registry.Load().loops
	found, _ = r.watch.Move(func(now mono.Time) mono.Time { return r.lastHeard(loops, now) })
	now, state := r.watch.Clock.Read(), r.watch.Monitor.State()
	shortest := r.watch.Rule().Shortest
	isShorter := verdict.Shorter(r.shortest, shortest) != r.shortest // groups have shorter steps
	r.shortest = shortest
	crowded := r.crowd.mustShed(1) || isHigh(&r.output, set.Front.(*Config).OutputLimit.Total)
	for _, l := range loops {
		if r.live[l] && (crowded || isShorter || l.task.isNeeded(now, set.Version, state)) {
			errs = append(errs, r.post(l))
		}
	}
	return found, errors.Join(errs...)
}

// post posts a task to a loop that has connections, unless a task is on its way.
func (r *Reaper) post(l *loop) error {
	if l.task.posted.Swap(true) {
		return nil
	}
	l.task.postedAt.Store(int64(r.watch.Clock.Elapsed()))
	err := l.el.Execute(context.Background(), gnet.RunnableFunc(l.run))
	if err != nil {
		l.task.posted.Store(false)
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
	return r.watch.Clock.Before(mono.Stamp(last), now)
}

// warnUndated logs once which limits do not work because the kernel does not date bytes.
func (r *Reaper) warnUndated() {
	r.warnings.undated.Do(func() {
		r.watch.Settings().Logger.Warn("the kernel does not report when the bytes of some connections arrived and were sent, " +
			"as on unix sockets, in gVisor and on systems other than Linux: " +
			"they are never write idle, AllTimeout counts their reads, and MinRate does not find them slow")
	})
}

// warnForeign logs once the type of a connection that hides gnet's own.
func (r *Reaper) warnForeign(c gnet.Conn) {
	r.warnings.foreign.Do(func() {
		r.watch.Settings().Logger.Warn("a connection is not gnet's own and hides the connection inside: "+
			"give its type a method NetConn or Unwrap that returns the gnet.Conn", "type", reflect.TypeOf(c).String())
	})
}
