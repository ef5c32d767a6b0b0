package idle

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/wheel"
)

const (
	// taskTime bounds one task on a loop, so that the living are served in between: a close costs about 10 µs. With twice as
	// much the living wait twice as long, with half as much no less.
	taskTime = 500 * time.Microsecond
	// taskStep is how many entries are taken from the wheel between two looks at the clock.
	taskStep = 32
)

// A loop is what the Reaper keeps for one event loop of gnet. Except where otherwise noted, all of it is owned by the
// loop goroutine.
type loop struct {
	// Immutable.
	reaper *Reaper
	clock  *clock
	el     gnet.EventLoop
	number uint32
	expire func(wheel.Handle, uint32) // judgeDue, bound once

	before *settings // by which all connections were judged last
	set    *settings
	isPong func(gnet.Conn) bool // of set
	hard   int                  // output limit of set
	limits limitsTable
	asked  uint32 // the connections from this state on
	toAsk  uint32 // to this one are not judged by the settings of now yet

	wheel  *wheel.Wheel[uint32] // ids of states
	conns  connType
	table  table
	states states
	holds  map[uint32]int // by id, what does not fit in a state
	open   int            // connections
	due    time.Duration

	victims      []victim // who goes next to make room
	hand         int      // the piece of the table where was looked last
	soughtInVain int64    // the stamp at which nobody was found

	counters counters
	counted  int64      // the stamp at which the counters were last published
	refused  packedConn // the connection that is being refused
	closing  *state     // the connection that is being reaped, and why
	reason   *ReapError
	stop     error // gnet's request to shut down, which the task must return
	closed   closedRing

	// Atomic.
	dueAt     atomic.Int64 // copy of due for the driver
	version   atomic.Int64 // of the settings by which all connections are judged
	posted    atomic.Bool  // a task is on its way
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
	l := &loop{reaper: r, clock: &r.clock, el: el, number: number, wheel: w}
	l.expire = l.judgeDue
	l.setDue(never)
	l.follow(set)
	return l
}

// add begins to watch a connection.
func (l *loop) add(c gnet.Conn) {
	if l.open == maxWatched {
		l.reaper.warn(&l.reaper.warnings.crowded, "too many connections of one event loop: one more is not watched", "limit", maxWatched)
		l.reaper.total.Add(-1)
		return
	}
	if l.open == 0 {
		l.follow(l.reaper.settings.Load())
	}
	now := l.clock.now.Load()
	id, s := l.states.take(l.clock.packNow())
	s.conn = l.pack(c)
	if rate := l.set.limits.rate; rate.Always {
		s.instants[atRated] = l.clock.pack(l.clock.elapsed() + rate.Grace)
	}
	if old, replaced := l.table.insert(c, id, uint32(now)); replaced {
		l.forget(old)
	}
	r, _ := l.table.find(c)
	f := l.life(r, id, s)
	s.timer = l.wheel.Schedule(l.set.limits.judge(&f, l.clock.read()).next, id)
	l.open++
	l.counters.Opened++
	l.setDue(min(l.due, l.wheelDue()))
	l.publish(now)
}

// remove stops watching a connection, and returns why it was reaped, nil if it was closed otherwise: with what error gnet says.
func (l *loop) remove(id uint32, err error) (reason *ReapError) {
	s := l.states.at(id)
	if l.closing == s {
		reason = l.reason
		l.counters.reaped(reason)
		l.closed.add(l, s, reason)
	} else {
		l.counters.ended(err)
	}
	l.table.remove(l.conn(s))
	l.forget(id)
	l.publish(l.clock.now.Load())
	return reason
}

// forget drops the state of a connection whose row is gone.
func (l *loop) forget(id uint32) {
	s := l.states.at(id)
	l.wheel.Cancel(s.timer)
	l.limits.put(s.limits)
	delete(l.holds, id)
	l.states.put(id)
	l.open--
	l.reaper.total.Add(-1)
	l.counters.Closed++
}

// countLastRead counts a message whose handler has closed the connection.
func (l *loop) countLastRead(heard bool) {
	if heard {
		l.counters.Reads++
		l.publish(l.clock.now.Load())
	}
}

// leave records how many bytes the handler left in gnet's buffer.
func (l *loop) leave(c gnet.Conn, bytes int) {
	r, id := l.table.find(c)
	r.mark &^= leftover
	if bytes != 0 {
		r.mark |= leftover
	}
	l.states.at(id).leftover = uint32(bytes)
}

// isHeard reports whether there are new bytes, for a connection whose row has something special.
func (l *loop) isHeard(r *row, c gnet.Conn, buffered int) bool {
	heard := buffered > 0
	if r.mark&leftover != 0 {
		_, id := l.table.find(c)
		heard = l.states.at(id).leftover != uint32(buffered)
	}
	if heard {
		r.mark &^= fresh
	}
	return heard
}

// ponged notes a sign of life that IsPong has seen.
func (l *loop) ponged(c gnet.Conn) {
	_, id := l.table.find(c)
	l.markAlive(l.states.at(id))
}

// overflow makes the next task look at a connection with more output than the hard limit.
func (l *loop) overflow(c gnet.Conn) {
	_, id := l.table.find(c)
	l.rearm(id, l.states.at(id))
}

// run is the task: it judges what is due, for a bounded time.
func (l *loop) run(context.Context) error {
	l.stop = nil
	began := time.Now()
	if set := l.reaper.settings.Load(); set != l.set {
		l.follow(set)
	}
	spent := func(part time.Duration) bool { return l.stop != nil || time.Since(began) >= part }
	for l.asked < l.toAsk && !spent(l.reaper.taskTime/2) {
		l.ask(taskStep)
	}
	l.shed()
	more := true
	for more && !spent(l.reaper.taskTime) {
		_, more = l.wheel.Advance(l.clock.read(), taskStep, l.expire)
	}
	l.counters.Behind = 0
	if due := l.wheelDue(); more && due != never {
		l.counters.Behind = max(l.clock.elapsed()-due, 0)
	}
	l.publish(l.clock.now.Load())
	l.setDue(l.wheelDue())
	more = more || l.asked < l.toAsk
	if !more {
		l.version.Store(l.set.version)
	}
	l.posted.Store(false) // from here on the driver may post the next
	if more {
		l.reaper.continueSoon()
	}
	return l.stop
}

// follow takes other settings. Connections that are watched already are judged by them once ask has come to them.
func (l *loop) follow(set *settings) {
	if set == l.set {
		return
	}
	if l.asked >= l.toAsk { // otherwise some connections have not come to know of the last ones
		l.before = l.set
	}
	l.set, l.isPong, l.hard = set, set.cfg.Heartbeat.IsPong, set.cfg.OutputLimit.Hard
	l.limits.reset(set)
	if l.asked, l.toAsk = 0, l.states.used; l.open == 0 {
		l.toAsk = 0
		l.version.Store(set.version)
	}
}

// ask sees to it that the next connections are judged by the settings of now: those whose deadlines are earlier by them.
func (l *loop) ask(n int) {
	for ; n > 0 && l.asked < l.toAsk; n-- {
		id := l.asked
		l.asked++
		s := l.states.at(id)
		if !s.used() {
			continue
		}
		l.adapt(s)
		l.rearm(id, s)
	}
}

// adapt brings what is known of a connection in line with settings by which other limits are on than before: what a limit has left
// behind must not be taken for news when it is on again.
func (l *loop) adapt(s *state) {
	lim, now := l.set.limits, l.clock.packNow()
	if !l.set.cfg.ObserveOnly {
		s.flags.set(observed, false)
	}
	if lim.poll == 0 {
		s.instants[atStuck], s.instants[atOver] = 0, 0
	}
	if lim.output.Soft == 0 {
		s.instants[atOver] = 0
	}
	if lim.age == 0 && s.flags.has(leaving) {
		s.flags.set(leaving, false)
		s.instants[atBeat] = now
	}
	switch {
	case lim.interval == 0:
		s.flags.setMissed(0)
	case lim.pongs && (l.before == nil || !l.before.limits.pongs) && !s.flags.has(leaving): // not all that are old at once
		s.flags.setMissed(0)
		s.instants[atBeat] = now
	}
	wasAlways := l.before != nil && l.before.limits.rate.Always
	switch {
	case lim.rate.BytesPerSecond == 0, wasAlways && !lim.rate.Always:
		s.instants[atRated], s.received = 0, 0
	case lim.rate.Always && s.instants[atRated] == 0:
		s.instants[atRated], s.received = l.clock.pack(l.clock.elapsed()+lim.rate.Grace), 0
	}
	if l.before != nil && l.before.cfg.Liveness != l.set.cfg.Liveness {
		l.setLiveness(l.conn(s), l.set.cfg.Liveness)
	}
}

// setLiveness sets the options of the kernel for a connection; 0 is none.
func (l *loop) setLiveness(c gnet.Conn, d time.Duration) {
	if err := setLiveness(c, d); err != nil {
		l.reaper.warn(&l.reaper.warnings.keepalive, "setting keepalive", "remote", nameOf(c.RemoteAddr()), "error", err)
	}
}

// limitsOf returns the limits of a connection.
func (l *loop) limitsOf(s *state) *limits { return l.limits.all[s.limits] }

// rearm moves the deadline of a connection in the wheel to where it belongs, after something has changed it.
func (l *loop) rearm(id uint32, s *state) {
	r, _ := l.table.find(l.conn(s))
	f := l.life(r, id, s)
	now := l.clock.read()
	next := now
	if v := l.judge(s, &f, now); v.act == wait {
		next = v.next
	} else if due, filed := l.wheel.Deadline(s.timer); filed && due <= now {
		return // it is about to be judged: whatever comes meanwhile must not put that off
	}
	s.timer = l.wheel.Reschedule(s.timer, next)
	l.setDue(min(l.due, l.wheelDue()))
}

// life collects what is known of a connection.
func (l *loop) life(r *row, id uint32, s *state) life {
	now := l.clock.elapsed()
	for i := range s.instants {
		l.clock.clamp(&s.instants[i], now)
	}
	instant := func(i int) time.Duration { return l.clock.unpack(s.instants[i], now) }
	born := instant(atOpened)
	f := life{
		opened: l.span(born), heard: l.heard(r, s, now),
		fresh: r.mark&fresh != 0, ready: r.mark&ready != 0, held: s.holds > 0,
		stuck: instant(atStuck), over: instant(atOver), rated: instant(atRated), counting: s.received != 0,
		blind: s.flags.has(blind), beat: instant(atBeat), missed: s.flags.missed(), leaving: s.flags.has(leaving), dice: dice(id, s.instants[atOpened]),
	}
	for i := range f.noticed {
		f.noticed[i] = instant(atNoticed + i)
	}
	f.wrote = f.opened
	if to := instant(atWrote); to != 0 {
		f.wrote = l.span(to)
	}
	lim := l.limitsOf(s)
	if lim.poll > 0 || lim.drain != (drain{}) {
		f.output = l.conn(s).OutboundBuffered()
	}
	if f.missed > 0 && !lim.pongs && f.heard.to > f.beat-lim.tick { // any byte is an answer
		s.flags.setMissed(0)
		f.missed = 0
	}
	return f
}

// heard returns when the peer was heard last. What the stamp says is kept as an instant as well, for when the clock has
// forgotten about it.
func (l *loop) heard(r *row, s *state, elapsed time.Duration) span {
	now := l.clock.now.Load()
	stamp := unwrap(r.heard, now)
	if now-stamp > math.MaxInt32 { // keep it within reach of unwrap, however long it stays idle
		stamp = now - math.MaxInt32
		r.heard = uint32(stamp)
	}
	if !l.clock.remembers(stamp) {
		if known := s.instants[atHeard]; known != 0 {
			return l.span(l.clock.unpack(known, elapsed))
		}
		return span{0, l.clock.before(stamp)}
	}
	when := span{l.clock.after(stamp), l.clock.before(stamp)}
	s.instants[atHeard] = 0
	if stamp < now { // otherwise the bound may still move
		s.instants[atHeard] = l.clock.pack(when.to)
	}
	return when
}

// span returns the bounds of an instant that was packed. The upper one was rounded up to a tick, and lay at most a tick or two
// steps of the kernel above the lower one.
func (l *loop) span(to time.Duration) span {
	return span{to - l.clock.tick - max(l.clock.tick, 2*kernelStep), to}
}

// dice returns a number from 0 to 1 that stays the same as long as a connection lives, and needs no memory.
func dice(id, opened uint32) float64 {
	x := uint64(opened)<<32 | uint64(id)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9 // the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// wheelDue returns when the wheel needs a task next.
func (l *loop) wheelDue() time.Duration {
	due, ok := l.wheel.NextDue()
	if !ok {
		return never
	}
	return due
}

func (l *loop) setDue(due time.Duration) {
	l.due = due
	l.dueAt.Store(int64(due))
}
