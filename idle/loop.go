package idle

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/coarse"
	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/slab"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// never is the deadline that does not come.
const never = verdict.Never

// A loop is what the Reaper keeps for one event loop of gnet. Except where otherwise noted, all of it
// is owned by the loop goroutine.
type loop struct {
	// Immutable.
	reaper    *Reaper
	clock     *coarse.Clock
	el        gnet.EventLoop
	number    uint32
	goroutine string
	expire    func(wheel.Handle, uint32) // judgeDue, bound once

	previous *settings // by which all connections were judged last
	set      *settings
	isPong   func(gnet.Conn) bool // of set
	hard     int                  // output limit of set
	limits   limitsTable
	adapted  uint32 // the connections from this state on
	toAdapt  uint32 // to this one are not judged by the settings of now yet

	wheel    *wheel.Wheel[uint32] // ids of states
	table    conntable.Table
	states   slab.Slab[state]
	remotes  map[*state]net.Addr   // of SetRemote
	wrappers map[*state]gnet.Conn  // the connections around those of gnet
	closings map[*state]*ReapError // connections that will be closed soon, and why
	evidence verdict.Evidence      // of the connection that is being judged
	open     int                   // connections
	due      time.Duration

	sweep  sweep
	found  *outage.State   // what away is made of
	stalls verdict.Outages // of this loop alone
	ran    time.Duration   // the last task ended before
	away   verdict.Away

	victims       []victim // the next connections to shed
	scanAt        int      // the piece of the table where the search for them goes on
	foundNoVictim int64    // the stamp at which none was found

	counters    counters
	publishedAt int64        // the stamp at which the counters were last published
	refused     map[uint]int // by descriptor, the connections that are being refused
	closing     *state       // the connection that is being reaped, and why
	reason      *ReapError
	stop        error // gnet's request to shut down, which the task must return
	closed      closedRing

	// Atomic.
	dueAt     atomic.Int64                 // copy of due for the driver
	heardAt   atomic.Int64                 // the stamp at which a peer was heard last
	followed  atomic.Pointer[outage.State] // copy of found
	version   atomic.Int64                 // of the settings by which all connections are judged
	posted    atomic.Bool                  // a task is on its way
	postedAt  atomic.Int64                 // since then
	published published

	// Guarded by Reaper.mu.
	live bool // it has connections, so gnet runs it and tasks may be posted
}

func newLoop(r *Reaper, el gnet.EventLoop, number uint32) *loop {
	set := r.settings.Load()
	w, err := wheel.New[uint32](set.cfg.Tick, set.cfg.slots())
	if err != nil {
		panic("BUG: " + err.Error()) // Config was checked
	}
	l := &loop{reaper: r, clock: &r.clock, el: el, number: number, goroutine: goroutineID(), wheel: w, sweep: sweep{due: never}}
	l.expire = l.judgeDue
	l.found = r.monitor.State()
	l.setDue(never)
	l.follow(set)
	return l
}

// add begins to watch a connection, which is gnet's own.
func (l *loop) add(c gnet.Conn) {
	if l.open == conntable.Max {
		l.reaper.warn(&l.reaper.warnings.crowded, "too many connections of one event loop: one more is not watched", "limit", conntable.Max)
		l.reaper.total.Add(-1)
		return
	}
	if l.open == 0 {
		l.follow(l.reaper.settings.Load())
	}
	now := l.clock.Stamp()
	id, s := l.takeState(l.clock.PackNow())
	s.conn = c
	if rate := l.set.limits.Rate; rate.Always {
		s.instants[atRated] = l.packAfter(rate.Grace)
	}
	if old, replaced := l.table.Insert(key(c), id, uint32(now)); replaced {
		l.forget(old)
	}
	r, _ := l.table.Find(key(c))
	f := l.facts(r, id, s, l.clock.Elapsed())
	next := l.clock.Read()
	if v := l.set.limits.Judge(&f, &l.away, next); v.Act == verdict.Wait {
		next = v.Next // otherwise the process was stopped meanwhile
	}
	s.timer = l.wheel.Schedule(l.upcoming(next), id)
	l.open++
	l.counters.Opened++
	l.setDue(min(l.due, l.nextDue()))
	l.publish(now)
}

// takeState returns a state for a connection that was opened at a packed instant.
func (l *loop) takeState(opened uint32) (id uint32, s *state) {
	id, s = l.states.Take(opened)
	s.instants[atOpened] = opened
	return id, s
}

// remove stops watching a connection, and returns why it was reaped, nil if it was closed otherwise: with what error gnet says.
func (l *loop) remove(id uint32, err error) (reason *ReapError) {
	s := l.states.At(id)
	if reason = l.closings[s]; l.closing == s {
		reason = l.reason
	}
	if reason != nil {
		l.counters.countReap(reason)
		l.closed.add(l, s, reason)
	} else {
		l.counters.ended(err)
	}
	l.table.Remove(key(s.conn))
	l.forget(id)
	l.publish(l.clock.Stamp())
	return reason
}

// forget drops the state of a connection whose record is gone.
func (l *loop) forget(id uint32) {
	s := l.states.At(id)
	l.wheel.Cancel(s.timer)
	l.limits.put(s.limits)
	delete(l.remotes, s)
	delete(l.wrappers, s)
	if s.flags.has(observed) || l.closings[s] != nil {
		l.reaper.spared.Add(-1)
	}
	delete(l.closings, s)
	l.states.Put(id, s.instants[atOpened])
	l.open--
	l.reaper.total.Add(-1)
	l.counters.Closed++
}

// noteHeard takes note that a peer was heard. A quiet loop is swept soon: answers may follow.
func (l *loop) noteHeard(stamp int64) {
	l.heardAt.Store(max(l.heardAt.Load(), stamp))
	if l.sweep.quiet {
		l.sweep.quiet = false
		l.sweep.due = min(l.sweep.due, l.nextSweep(l.clock.Elapsed()))
		l.setDue(min(l.due, l.sweep.due))
	}
}

// countLastRead counts a message whose handler has closed the connection.
func (l *loop) countLastRead(heard bool) {
	if heard {
		l.counters.Reads++
		now := l.clock.Stamp()
		l.noteHeard(now)
		l.publish(now)
	}
}

// noteLeftover records how many bytes the handler left in gnet's buffer.
func (l *loop) noteLeftover(c gnet.Conn, bytes int) {
	r, id := l.table.Find(key(c))
	r.Set(conntable.Leftover, false)
	if bytes != 0 {
		r.Set(conntable.Leftover, true)
	}
	l.states.At(id).leftover = uint32(bytes)
}

// isHeard reports whether there are new bytes, for a connection whose record has something special.
func (l *loop) isHeard(r *conntable.Record, c gnet.Conn, buffered int) bool {
	heard := buffered > 0
	if r.Has(conntable.Leftover) {
		_, id := l.table.Find(key(c))
		heard = l.states.At(id).leftover != uint32(buffered)
	}
	if heard {
		r.Set(conntable.Fresh, false)
	}
	return heard
}

// ponged notes a sign of life that IsPong has seen.
func (l *loop) ponged(c gnet.Conn) {
	_, id := l.table.Find(key(c))
	l.markAlive(l.states.At(id))
}

// overflow makes the next task look at a connection with more output than the hard limit.
func (l *loop) overflow(c gnet.Conn) {
	_, id := l.table.Find(key(c))
	l.rearm(id, l.states.At(id))
}

// adapt brings what is known of a connection in line with settings by which other limits are on than before: what a limit has left
// behind must not be taken for news when it is on again.
func (l *loop) adapt(s *state) {
	lim, now := l.set.limits, l.clock.PackNow()
	if !l.set.cfg.ObserveOnly && s.flags.has(observed) {
		s.flags.set(observed, false)
		l.reaper.spared.Add(-1)
	}
	if lim.PollOutput() == 0 {
		s.instants[atStalled], s.instants[atOver] = 0, 0
	}
	if lim.Output.Soft == 0 {
		s.instants[atOver] = 0
	}
	if lim.Age == 0 && s.flags.has(leaving) {
		s.flags.set(leaving, false)
		s.instants[atPinged] = now
	}
	switch {
	case lim.Heartbeat.Interval == 0:
		s.flags.setMissed(0)
	case lim.Heartbeat.PongsOnly && (l.previous == nil || !l.previous.limits.Heartbeat.PongsOnly) && !s.flags.has(leaving):
		// Otherwise all old connections would be asked at once.
		s.flags.setMissed(0)
		s.instants[atPinged] = now
	}
	wasAlways := l.previous != nil && l.previous.limits.Rate.Always
	switch {
	case lim.Rate.BytesPerSecond == 0, wasAlways && !lim.Rate.Always:
		s.instants[atRated], s.received = 0, 0
	case lim.Rate.Always && s.instants[atRated] == 0:
		s.instants[atRated], s.received = l.packAfter(lim.Rate.Grace), 0
	}
	if l.previous != nil && l.previous.cfg.TCPKeepAlive != l.set.cfg.TCPKeepAlive {
		l.setTCPKeepAlive(s.conn, l.set.cfg.TCPKeepAlive)
	}
}

// setTCPKeepAlive sets the options of the kernel for a connection; 0 is none.
func (l *loop) setTCPKeepAlive(c gnet.Conn, d time.Duration) {
	if err := setTCPKeepAlive(c, d); err != nil {
		l.reaper.warn(&l.reaper.warnings.keepalive, "setting keepalive", "remote", nameOf(c.RemoteAddr()), "error", err)
	}
}

// packAfter packs the instant that is d from now.
func (l *loop) packAfter(d time.Duration) uint32 { return l.clock.Pack(l.clock.Elapsed() + d) }

// limitsOf returns the limits of a connection.
func (l *loop) limitsOf(s *state) *limits { return l.limits.at(s.limits, l.set) }

// rearm moves the deadline of a connection in the wheel forward to where it belongs, after something has
// changed it. It never moves it back: output would not be checked as long as calls follow each other
// faster than the checks. If the deadline is later now, the next judgement finds that.
func (l *loop) rearm(id uint32, s *state) {
	r, _ := l.table.Find(key(s.conn))
	f := l.facts(r, id, s, l.clock.Elapsed())
	now := l.clock.Read()
	next := now
	if v := l.judge(s, &f, &l.away, now); v.Act == verdict.Wait {
		next = v.Next
	}
	if due, filed := l.wheel.Deadline(s.timer); filed && due <= next {
		return
	}
	s.timer = l.wheel.Reschedule(s.timer, l.upcoming(next))
	l.setDue(min(l.due, l.nextDue()))
}

// upcoming returns the deadline in the wheel for a connection that is to be judged at an instant. It
// is the tick before: a deadline that is counted from a move of the clock lies as long after a tick
// as that move was late. If the move at that tick is as late, the deadline has passed by then.
func (l *loop) upcoming(next time.Duration) time.Duration {
	if early := next - next%l.clock.Tick(); early > l.clock.Read() {
		return early
	}
	return next
}

// wheelDue returns when the wheel needs a task next.
func (l *loop) wheelDue() time.Duration {
	due, ok := l.wheel.NextDue()
	if !ok {
		return never
	}
	return due
}

// nextDue returns when the loop needs a task next.
func (l *loop) nextDue() time.Duration {
	if l.sweep.next != l.sweep.end { // it goes on
		return 0
	}
	return min(l.wheelDue(), l.sweep.due)
}

func (l *loop) setDue(due time.Duration) {
	l.due = due
	l.dueAt.Store(int64(due))
}
