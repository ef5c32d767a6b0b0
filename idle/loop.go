package idle

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/conntable"
	"github.com/idlewheel/idlewheel/internal/conntimer"
	"github.com/idlewheel/idlewheel/internal/counts"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/outage"
	"github.com/idlewheel/idlewheel/internal/outputs"
	"github.com/idlewheel/idlewheel/internal/slab"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/wheel"
)

// never is the deadline that never passes.
const never = verdict.Never

// A loop is the Reaper's part of one event loop of gnet. Except where otherwise noted, the loop
// goroutine owns all of it.
type loop struct {
	// Immutable.
	reaper    *Reaper
	clock     *mono.Clock
	el        gnet.EventLoop
	number    uint32
	goroutine string
	expire    func(wheel.Handle, uint32) // judgeDue, bound once

	previous   *settings // by which all connections were judged before set
	set        *settings
	isPong     func(gnet.Conn) bool // of set
	hardLimit  int                  // OutputLimit.Hard of set
	totalLimit int                  // OutputLimit.Total of set, 0 if there is none
	limits     limitsTable
	adapted    uint32 // id of the first state that is not adapted to set yet
	toAdapt    uint32 // id after the last such state

	wheel         *wheel.Wheel[uint32] // ids of states
	timers        *conntimer.Timers[*state]
	table         conntable.Table
	states        slab.Slab[state]
	remotes       map[*state]net.Addr   // of SetRemote
	wrappers      map[*state]gnet.Conn  // the connections around gnet's own
	pendingCloses map[*state]*ReapError // connections that gnet will close soon, and the reason
	evidence      verdict.Evidence      // of the connection that is being judged
	open          int                   // connections
	due           mono.Time             // when the next task is needed

	sweep        sweep
	outputs      outputs.Set     // of judged connections, as last seen; empty without totalLimit
	monitorState *outage.State   // the last one that was followed
	stalls       verdict.Outages // of this loop alone
	lastRan      mono.Time       // the end of the last task
	outages      verdict.Away

	candidates    []candidate // the next connections to shed
	scanAt        int         // the piece of the table at which the next scan begins
	noCandidateAt mono.Stamp  // the stamp at which there was no connection to shed

	counters    counters
	publishedAt mono.Stamp   // the stamp at which the counters were last published
	refused     map[uint]int // the connections that are being refused, by descriptor
	reaping     *state       // the connection that is being reaped
	reapReason  *ReapError   // the reason why
	stop        error        // gnet's request to shut down, which the task must return
	closed      counts.ClosedRing

	// Atomic.
	dueAt         atomic.Int64                 // copy of due for the driver
	largestOutput atomic.Int64                 // copy of outputs.Largest for other loops
	heardAt       atomic.Int64                 // the stamp at which a peer was heard last
	followedState atomic.Pointer[outage.State] // copy of monitorState for the driver
	version       atomic.Int64                 // of the settings by which all connections are judged
	posted        atomic.Bool                  // a task is on its way
	postedAt      atomic.Int64                 // the time at which that task was posted
	published     published

	// Guarded by Reaper.mu.
	live bool // it has connections, so gnet runs it and accepts tasks
}

func newLoop(r *Reaper, el gnet.EventLoop, number uint32) *loop {
	set := r.settings.Load()
	w, err := wheel.New[uint32](set.cfg.Tick)
	if err != nil {
		panic("BUG: idle: " + err.Error()) // the Config was checked
	}
	l := &loop{reaper: r, clock: &r.clock, el: el, number: number, goroutine: goroutineID(), wheel: w, sweep: sweep{due: never}}
	l.timers = conntimer.New[*state](set.cfg.Tick)
	l.expire = l.judgeDue
	l.monitorState = r.monitor.State()
	l.setDue(never)
	l.follow(set)
	return l
}

// add starts to watch one of gnet's own connections.
func (l *loop) add(c gnet.Conn) {
	if l.open == conntable.Max {
		l.reaper.warn(&l.reaper.warnings.crowded,
			"too many connections of one event loop: one more is not watched", "limit", conntable.Max)
		l.reaper.total.Add(-1)
		return
	}
	if l.open == 0 {
		l.follow(l.reaper.settings.Load())
	}
	now, stamp := l.clock.Elapsed(), l.clock.Stamp()
	id, s := l.states.Take(uint32(l.clock.Pack(now)))
	s.conn = c
	s.Open(l.clock, l.set.limits.Rate, now)
	if old, replaced := l.table.Insert(key(c), id, stamp.Short()); replaced {
		l.forget(old)
	}
	r, _ := l.table.Find(key(c))
	f := l.facts(r, id, s, now)
	next := l.clock.Read()
	if v := l.set.limits.Judge(&f, &l.outages, next); v.Act == verdict.Wait {
		next = v.Next // otherwise the process was stopped in between
	}
	s.timer = l.wheel.Schedule(l.upcoming(next), id)
	l.open++
	l.counters.Opened++
	l.setDue(min(l.due, l.nextDue()))
	l.publish(stamp)
}

// remove stops watching a connection. It returns the reason if the Reaper has closed the
// connection, and nil otherwise. The error is gnet's.
func (l *loop) remove(id uint32, err error) (reason *ReapError) {
	s := l.states.At(id)
	if reason = l.pendingCloses[s]; l.reaping == s {
		reason = l.reapReason
		l.reaping, l.reapReason = nil, nil
	}
	if reason != nil {
		l.counters.CountReap(reason)
		l.addClosed(id, s, reason)
	} else {
		l.counters.CountEnd(err)
	}
	l.table.Remove(key(s.conn))
	l.forget(id)
	l.publish(l.clock.Stamp())
	return reason
}

// forget drops the state of a connection that has no record any more.
func (l *loop) forget(id uint32) {
	s := l.states.At(id)
	l.wheel.Cancel(s.timer)
	l.timers.Drop(s)
	l.setOutput(id, 0)
	l.limits.put(s.LimitsID)
	delete(l.remotes, s)
	delete(l.wrappers, s)
	if s.Observed() || l.pendingCloses[s] != nil {
		l.reaper.decided.Add(-1)
	}
	delete(l.pendingCloses, s)
	l.states.Put(id, uint32(s.Opened()))
	l.open--
	l.reaper.total.Add(-1)
	l.counters.Closed++
}

// noteHeard records that a peer was heard. A quiet loop is swept soon, because answers may follow.
func (l *loop) noteHeard(stamp mono.Stamp) {
	l.heardAt.Store(max(l.heardAt.Load(), int64(stamp)))
	if l.sweep.quiet {
		l.sweep.quiet = false
		l.sweep.due = min(l.sweep.due, l.nextSweep(l.clock.Elapsed()))
		l.setDue(min(l.due, l.sweep.due))
	}
}

// countLastRead counts a message if the handler has closed its connection.
func (l *loop) countLastRead(heard bool) {
	if heard {
		l.counters.Reads++
		now := l.clock.Stamp()
		l.noteHeard(now)
		l.publish(now)
	}
}

// noteLeftover records how many bytes the handler left in gnet's buffer. Usually there are none,
// and the call is inlined.
func (l *loop) noteLeftover(r *conntable.Record, c gnet.Conn, bytes int) {
	if bytes != 0 || r.Has(conntable.Leftover) {
		l.setLeftover(c, bytes)
	}
}

func (l *loop) setLeftover(c gnet.Conn, bytes int) {
	r, id := l.table.Find(key(c))
	r.Set(conntable.Leftover, bytes != 0)
	l.states.At(id).leftover = uint32(bytes)
}

// isHeard reports whether there are new bytes. The record has the flag Leftover or Fresh.
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

// notePong records a sign of life that IsPong has seen.
func (l *loop) notePong(c gnet.Conn) {
	_, id := l.table.Find(key(c))
	l.states.At(id).Alive(l.clock)
}

// adapt brings the state of a connection in line with new settings. A limit that is switched on
// again must not use old values.
func (l *loop) adapt(s *state) {
	if !l.set.cfg.ObserveOnly && s.Observed() {
		s.SetObserved(false)
		l.reaper.decided.Add(-1)
	}
	var before *verdict.Limits
	if l.previous != nil {
		before = &l.previous.limits.Limits
	}
	s.Adapt(l.clock, before, &l.set.limits.Limits)
	if l.previous != nil && l.previous.cfg.TCPKeepAlive != l.set.cfg.TCPKeepAlive {
		l.setTCPKeepAlive(s.conn, l.set.cfg.TCPKeepAlive)
	}
}

// setTCPKeepAlive sets the options of the kernel for a connection. If d is 0, it switches them off.
func (l *loop) setTCPKeepAlive(c gnet.Conn, d time.Duration) {
	if err := setTCPKeepAlive(c, d); err != nil {
		l.reaper.warn(&l.reaper.warnings.keepalive, "setting keepalive",
			"remote", nameOf(c.RemoteAddr()), "error", err)
	}
}

// limitsOf returns the limits of a connection.
func (l *loop) limitsOf(s *state) *limits { return l.limits.at(s.LimitsID, l.set) }

// rearm moves the deadline of a connection in the wheel forward, after a change of its state. It
// never moves the deadline back: otherwise frequent calls would put off the checks of output for
// ever. If the deadline is later now, the next judgement finds that.
func (l *loop) rearm(id uint32, s *state) {
	r, _ := l.table.Find(key(s.conn))
	f := l.facts(r, id, s, l.clock.Elapsed())
	now := l.clock.Read()
	next := now
	if v := l.judge(s, &f, &l.outages, now); v.Act == verdict.Wait {
		next = v.Next
	}
	if due, filed := l.wheel.Deadline(s.timer); filed && mono.Time(due) <= next {
		return
	}
	l.wheel.Reschedule(s.timer, l.upcoming(next))
	l.setDue(min(l.due, l.nextDue()))
}

// upcoming returns the deadline in the wheel of a connection that is to be judged at an instant. It
// is the tick before that instant. A deadline is counted from a move of the clock, so it lies as
// long after a tick as that move was late. If the move at that tick is as late, the deadline has
// passed.
func (l *loop) upcoming(next mono.Time) time.Duration {
	if early := next.Truncate(l.clock.Tick()); early > l.clock.Read() {
		return time.Duration(early)
	}
	return time.Duration(next)
}

// wheelDue returns when the next connection is judged or the next timer is due.
func (l *loop) wheelDue() mono.Time {
	next := never
	if due, ok := l.wheel.NextDue(); ok {
		next = mono.Time(due)
	}
	if due, ok := l.timers.NextDue(); ok {
		next = min(next, due)
	}
	return next
}

// nextDue returns when the loop needs the next task.
func (l *loop) nextDue() mono.Time {
	if l.sweep.next != l.sweep.end { // the sweep is not over
		return 0
	}
	return min(l.wheelDue(), l.sweep.due)
}

func (l *loop) setDue(due mono.Time) {
	l.due = due
	l.dueAt.Store(int64(due))
}
