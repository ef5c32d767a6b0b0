package idle

import "time"

// never is the deadline that does not come.
const never = time.Duration(1<<63 - 1)

// A span bounds an instant: it lies after from and not after to. The stamps of the coarse clock and the counters of the
// kernel tell no more.
type span struct{ from, to time.Duration }

func at(instant time.Duration) span { return span{instant, instant} }

// or returns the bounds of the later of two instants.
func (s span) or(o span) span { return span{max(s.from, o.from), max(s.to, o.to)} }

// A life is what the judgement of a connection depends on, and nothing else: the judge has no clock, no socket and no loop.
// Instants are durations since the start of the clock. Where one is 0 there was none.
type life struct {
	opened  span
	heard   span                     // the last byte of the peer
	wrote   span                     // what was sent last; the same as opened if nothing was
	noticed [idleKinds]time.Duration // the last idle events, rounded up to the tick

	// What the kernel says of heard and wrote, to within kernelStep and within their bounds; 0 if it does not. For reports only: a
	// verdict that relied on it could be early by that step.
	heardAt, wroteAt time.Duration

	fresh bool // nothing was heard yet
	ready bool // MarkReady
	held  bool // Hold
	blind bool // it is not known when something was sent

	excused time.Duration // no handshake is missed before this

	output int           // bytes that wait in gnet's buffer
	stuck  time.Duration // output waits since then, and nothing was taken of it
	over   time.Duration // output is above the soft limit since then

	rated    time.Duration // the window of MinRate begins, or began, then
	counting bool          // it began
	taken    int           // bytes that came in it

	beat    time.Duration // the last ping, or the last pong; if leaving, when it was told to
	missed  int           // pings since the last answer
	leaving bool          // MaxAge was reached

	dice float64 // from 0 to 1, the same for all of a connection's life
}

// An act is what a verdict asks for.
type act uint8

const (
	wait  act = iota
	raise     // an idle event
	ping
	farewell
	end
)

// A verdict is the outcome of a judgement.
type verdict struct {
	act  act
	kind Kind          // whose deadline has passed
	due  time.Duration // that deadline
	next time.Duration // if it is wait: when to judge again
}

// judge returns what to do about a connection. Of the deadlines that have passed the earliest decides, so that a judge who
// comes late gives the same reason as one in time.
func (lim *limits) judge(f *life, now time.Duration) verdict {
	v := verdict{due: never, next: now + lim.horizon}
	for k := firstKind; k <= lastDue; k++ {
		due := lim.due(k, f)
		switch {
		case due > now:
			v.next = min(v.next, due)
		case due < v.due:
			v.kind, v.due = k, due
		}
	}
	if v.kind != 0 {
		v.act = lim.act(v.kind, f)
	}
	if lim.poll > 0 {
		v.next = min(v.next, now+lim.poll)
	}
	if lim.drain != (drain{}) && f.output > 0 {
		v.next = min(v.next, now+outputLook)
	}
	if f.rated != 0 && !f.counting {
		v.next = min(v.next, max(f.rated, now+lim.tick))
	}
	return v
}

// due returns the deadline of a kind.
func (lim *limits) due(k Kind, f *life) time.Duration {
	switch k {
	case ReadIdle, WriteIdle, AllIdle:
		return lim.idleDue(k, f)
	case NoFirstByte:
		return after(f.opened.to, lim.firstByte, f.fresh)
	case NoHandshake:
		return max(after(f.opened.to, lim.handshake, !f.ready), f.excused)
	case WriteStall:
		return after(f.stuck, lim.stall, f.stuck != 0)
	case OverLimit:
		if lim.output.Hard > 0 && f.output > lim.output.Hard {
			return 0
		}
		return after(f.over, lim.output.SoftFor, f.over != 0)
	case SlowPeer:
		return after(f.rated, lim.rate.Window, f.counting)
	case NoAnswer:
		return lim.beatDue(f)
	case TooOld:
		if f.leaving && lim.age > 0 {
			return f.beat + lim.grace
		}
		return after(f.opened.to, lim.age+share(lim.age, ageSpread*(2*f.dice-1)), lim.age > 0)
	case Drained:
		return lim.drainDue(f)
	default:
		panic("BUG: idle: no deadline for " + k.String())
	}
}

// after returns the deadline of a limit that is on and applies.
func after(since, limit time.Duration, applies bool) time.Duration {
	if limit == 0 || !applies {
		return never
	}
	return since + limit
}

func (lim *limits) idleDue(k Kind, f *life) time.Duration {
	limit := lim.idle(k)
	if f.held || f.blind && k == WriteIdle {
		return never
	}
	return after(max(f.active(k).to, f.noticed[k-1]), limit+share(limit, lim.jitter*f.dice), limit > 0)
}

// active returns when there was activity of the kind that ends an idleness.
func (f *life) active(k Kind) span {
	switch k {
	case ReadIdle:
		return f.heard
	case WriteIdle:
		return f.wrote
	default:
		return f.heard.or(f.wrote)
	}
}

// first reports whether an idle event of a kind would be the first since there was activity.
func (lim *limits) first(k Kind, f *life) bool {
	return f.active(k).to > f.noticed[k-1]-lim.tick // it was noticed within the tick before
}

// drainDue returns the turn of a connection: evenly spread over the time for the idle, for those that are active then over the rest
// up to the deadline, and for those that are held, or would lose output that waits, the deadline.
func (lim *limits) drainDue(f *life) time.Duration {
	d := lim.drain
	turn := d.began + share(d.spread, f.dice)
	switch {
	case d == drain{}:
		return never
	case f.held || f.output > 0:
		return d.began + d.deadline
	case f.active(AllIdle).to > turn-busyFor:
		return d.began + d.spread + share(d.deadline-d.spread, f.dice)
	}
	return turn
}

func (lim *limits) beatDue(f *life) time.Duration {
	switch {
	case lim.interval == 0 || f.leaving:
		return never
	case f.missed > 0:
		return f.beat + lim.retry
	}
	alive := f.heard.to
	if lim.pongs {
		alive = max(f.beat, f.opened.to)
	}
	return alive + lim.interval + share(lim.interval, firstPing*f.dice)
}

// act returns what a passed deadline asks for.
func (lim *limits) act(k Kind, f *life) act {
	switch {
	case k.isIdle():
		return raise
	case k == NoAnswer && f.missed < lim.maxMissed:
		return ping
	case k == TooOld && !f.leaving && lim.grace > 0:
		return farewell
	default:
		return end
	}
}

// event returns the idle event of a verdict.
func (lim *limits) event(v verdict, f *life, now time.Duration) Event {
	known := f.known(v.kind)
	ev := Event{Kind: v.kind, First: lim.first(v.kind, f), Timeout: lim.idle(v.kind), Idle: now - known.to, Late: lim.late(v, f, now)}
	if ev.First && ev.Late == now-v.due {
		ev.Late += f.active(v.kind).to - known.from
	}
	return ev
}

// late returns how long ago the deadline of a verdict was. One that a change of the limits has brought forward has passed when they
// changed, and not before.
func (lim *limits) late(v verdict, f *life, now time.Duration) time.Duration {
	due := v.due
	if lim.before != nil {
		due = max(due, min(lim.since, lim.before.due(v.kind, f)))
	}
	return now - due
}

// known returns when there was activity of a kind as exactly as it is known.
func (f *life) known(k Kind) span {
	exact := life{heard: f.heard, wrote: f.wrote}
	if f.heardAt != 0 {
		exact.heard = at(f.heardAt)
	}
	if f.wroteAt != 0 {
		exact.wrote = at(f.wroteAt)
	}
	return exact.active(k)
}

// reason returns why a connection ends that is reaped by a verdict which is no idle event.
func (lim *limits) reason(v verdict, f *life, now time.Duration) *ReapError {
	e := &ReapError{Kind: v.kind, Late: lim.late(v, f, now)}
	switch v.kind {
	case NoFirstByte:
		e.Limit, e.Lasted = lim.firstByte, now-f.opened.to
	case NoHandshake:
		e.Limit, e.Lasted = lim.handshake, now-f.opened.to
	case WriteStall:
		e.Limit, e.Lasted = lim.stall, now-f.stuck
	case OverLimit:
		e.Bytes = f.output
		if v.due == 0 { // seen just now
			e.Late, e.LimitBytes = 0, lim.output.Hard
			break
		}
		e.Limit, e.Lasted, e.LimitBytes = lim.output.SoftFor, now-f.over, lim.output.Soft
	case SlowPeer:
		e.Limit, e.Lasted, e.Bytes, e.LimitBytes = lim.rate.Window, now-f.rated, f.taken, lim.leastInWindow()
	case NoAnswer:
		e.Limit = lim.interval + time.Duration(f.missed)*lim.retry
		e.Lasted = e.Limit + now - v.due
	case TooOld:
		e.Limit, e.Lasted = lim.age, now-f.opened.to
	case Drained:
		e.Lasted = now - f.heard.to
	}
	return e
}

// evidence is the kernel's answer about a connection.
type evidence struct {
	found   finding
	counted bool // what follows is known: Linux and TCP

	silent   time.Duration // since the last byte arrived, to within kernelStep
	quiet    time.Duration // since something was sent last, sent again included, to within kernelStep
	moved    uint32        // acked: low bits
	inFlight bool          // something was sent that is not acknowledged yet
	again    bool          // and what was sent last was sent again, since no acknowledgement came in time
	unsent   int           // bytes that the kernel has not sent yet
	received uint64        // bytes that came in
	acked    uint64        // bytes that the peer has acknowledged
	queued   int           // bytes that the kernel has and the peer has not acknowledged; -1 if not known
}

type finding uint8

const (
	nothing finding = iota // no byte waits
	unread                 // bytes of the peer wait to be read
	ended                  // the peer has closed, or the connection is broken: gnet will report it, a reset as an end
)

// hear takes into account what the kernel knows of the peer's last byte, and reports whether it is later than was known.
func (lim *limits) hear(f *life, ev *evidence, now time.Duration) (later bool) {
	switch {
	case ev.found == unread:
		lim.excuse(f, ev, now)
		f.heard, f.fresh = at(now), false
		later = true
	case !ev.counted:
	case now-ev.silent-kernelStep > f.heard.to: // bytes after those that were stamped
		f.heard, f.fresh = span{now - ev.silent - kernelStep, now - ev.silent + kernelStep}, false
		later = true
	default: // a handler that took its time is not held against the peer
		f.heardAt = min(max(now-ev.silent, f.heard.from), f.heard.to)
	}
	if later {
		f.alive(lim, f.heard.to)
	}
	return later
}

// excuse gives a handshake more time whose bytes came in time and wait: then the server is late, and not the peer. If it cannot be
// said when they came it gets at most as much again, since a peer that sends all the time always has bytes that wait.
func (lim *limits) excuse(f *life, ev *evidence, now time.Duration) {
	deadline := f.opened.to + lim.handshake
	late := now - deadline
	if ev.counted && now-ev.silent-kernelStep <= deadline || late > 2*lim.tick && late <= lim.handshake {
		f.excused = now + lim.tick
	}
}

// alive takes note of a sign of life: no ping is without an answer.
func (f *life) alive(lim *limits, when time.Duration) {
	f.missed = 0
	if lim.pongs && !f.leaving {
		f.beat = when
	}
}

// look takes into account what the kernel knows of output, and what gnet has of it. The counter is that of the last look. It
// reports whether anything was sent since then.
func (lim *limits) look(f *life, ev *evidence, counter *uint32, now time.Duration) (sent bool) {
	taken := false // by the peer
	if ev.counted {
		taken = ev.moved != *counter
		*counter = ev.moved
		sent = taken || ev.inFlight && !ev.again
		f.lastSent(now-ev.quiet, sent)
		if taken && ev.unsent+f.output > 0 {
			f.missed = 0 // it takes what lies before the ping
		}
	} else { // all that can be seen is that another amount waits, or that the peer goes on to speak
		f.blind = true
		waits := uint32(max(ev.queued, 0) + f.output)
		taken = waits != *counter || f.heard.to > f.stuck
		*counter = waits
	}
	// What gnet has and the kernel would take is not for the peer to answer for.
	waits := ev.queued > 0 || ev.queued < 0 && f.output > 0
	switch {
	case !waits:
		f.stuck = 0
	case taken || f.stuck == 0:
		f.stuck = now
	}
	switch {
	case lim.output.Soft == 0 || f.output <= lim.output.Soft:
		f.over = 0
	case f.over == 0:
		f.over = now
	}
	return sent
}

// lastSent takes into account when the kernel has sent something last, new or again.
func (f *life) lastSent(when time.Duration, isNew bool) {
	if isNew { // otherwise it was that or before it
		f.wrote = f.wrote.or(span{when - kernelStep, when + kernelStep})
	}
	f.wroteAt = min(max(when, f.wrote.from), f.wrote.to)
}

// count takes into account how many bytes have come, and begins a window of MinRate or the next one. The counter is the one
// at the beginning of the window.
func (lim *limits) count(f *life, ev *evidence, counter *uint32, now time.Duration) {
	switch {
	case f.rated == 0:
		return
	case !ev.counted: // nobody can say
		f.rated, f.counting = 0, false
		return
	}
	f.taken = int(uint32(ev.received) - *counter)
	// Bytes that wait may be the end of the message: it is for the server to read them.
	enough := f.taken >= lim.leastInWindow() || ev.found == unread
	passed := f.counting && now >= f.rated+lim.rate.Window && enough
	if passed || !f.counting && now >= f.rated {
		*counter, f.rated, f.counting, f.taken = max(uint32(ev.received), 1), now, true, 0 // 0 is none
	}
}
