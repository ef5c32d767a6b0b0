package idle

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/testing/sim"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/internal/watch"
)

// This file has all that the simulation needs to know of the inside of a Reaper.

// simBatch is how many connections one call closes for the total of output, at most.
const simBatch = shedBatch

// simInside is the part of a world that has types of the inside.
type simInside struct {
	driver *driver
	sets   map[*watch.Settings]*sim.Settings
}

// makeReaper makes the Reaper, with the clock, the kernel and the driver of the world. It fills in
// the defaults of the Config.
func (w *simWorld) makeReaper(h gnet.EventHandler, cfg *Config) {
	checked, err := cfg.check(0, nil)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	elapsed := func() mono.Time { return mono.Time(w.Elapsed()) }
	w.reaper = newReaper(h, checked, elapsed, questions{w.ask, w.holdsOutput})
	w.Server, w.Monitor, w.sets = w.reaper, &w.reaper.watch.Monitor, make(map[*watch.Settings]*sim.Settings)
	w.reaper.startDriver = func(d *driver) {
		close(d.done)
		w.driver = d
		w.PlanRounds()
	}
}

// Drives reports whether there is a driver.
func (w *simWorld) Drives() bool { return w.driver != nil && w.driver == w.reaper.driver }

// Round is one round of the driver.
func (w *simWorld) Round() {
	w.reaper.round()
	w.soon = false
}

// Poll takes the place of the driver's wait for loops that need another round.
func (w *simWorld) Poll() {
	w.sets[w.reaper.watch.Settings()] = w.Set
	if !w.soon && w.Drives() && len(w.reaper.more) > 0 {
		<-w.reaper.more
		w.soon = true
		w.PlanRound(min(w.Now+pause, max(w.RoundDue, w.Now)))
	}
}

// Stopped lets the other threads run first after a stop, at times, unless a call holds a mutex.
func (w *simWorld) Stopped() {
	if !w.InRound && w.reaper != nil && w.One(2) && isFree(&w.reaper.mu) && isFree(watcherMutex(w.reaper)) {
		w.Sleep(0)
	}
}

// isFree reports whether a mutex is not held. The simulation has one goroutine: a call that needs a
// mutex that is held would wait for ever.
func isFree(mu *sync.Mutex) bool {
	free := mu.TryLock()
	if free {
		mu.Unlock()
	}
	return free
}

// watcherMutex returns the mutex of the Watcher of a Reaper.
func watcherMutex(r *Reaper) *sync.Mutex {
	return (*sync.Mutex)(unsafe.Pointer(reflect.ValueOf(&r.watch).Elem().FieldByName("mu").UnsafeAddr()))
}

// ask answers a question of the Reaper about a descriptor.
func (w *simWorld) ask(fd int, ev *verdict.Evidence) {
	*ev = verdict.Evidence{Found: verdict.Ended, Queued: -1}
	if c := w.aboutToAsk(fd); c != nil {
		if l := w.reaper.registry.Load().find(c.el); l != nil {
			c.el.Set = w.sets[l.Set]
		}
		w.Answer(c.life, ev, true)
	}
}

// kickNow does the work of the task of Reaper.Kick. Kick itself would wait for the loop.
func (w *simWorld) kickNow(c gnet.Conn) error {
	conn, ok := w.reaper.Conn(c)
	if !ok {
		return nil
	}
	l := conn.loop
	l.halt(nil)
	l.Kick(conn.id, uint32(conn.state().Opened()))
	l.publish(l.clock.Stamp())
	return l.stop
}
