package idle

import (
	"cmp"
	"maps"
	"slices"

	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/configtable"
	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
)

// OutputMarks tell a producer when to stop and when to go on, by the output of a connection in
// gnet's buffer, in bytes. Netty has the same in WriteBufferWaterMark and
// channelWritabilityChanged. The zero OutputMarks are off.
//
// A connection is not writable from the time at which its output has passed High until the output
// has fallen to Low. High is compared after OnOpen, OnTraffic and the timers of [Conn.After], and
// by [Conn.Writable], so a producer on the event loop that asks Writable before each write never
// leaves more than High and one write. Output that other goroutines write raises no event: it is
// noticed in the next tick if output waited before, and otherwise within a second. A producer on
// another goroutine asks Writable in the callback of each AsyncWrite. Low is compared in each tick
// while a connection is not writable. Set Low above what the fastest peer takes in a tick, so that
// the peer never waits for the producer.
type OutputMarks struct {
	// High is the mark above which a connection is not writable. OnWritable is required with it. If
	// zero, the marks are off.
	High int
	// Low is the mark at which a connection is writable again, at most High. If zero, it is half of
	// High.
	Low int
	// OnWritable is told that a connection is not writable, and later that it is again: never the
	// same twice in a row, and never after OnClose. It may write and close the connection. A panic
	// ends the process, as one of OnIdle does.
	//
	// It is called for connections with ObserveOnly as well, and not for exempt ones. If a
	// connection that is not writable becomes exempt, or Update switches the marks off, OnWritable
	// gets true: the function that was set last does.
	OnWritable func(c gnet.Conn, writable bool)
}

func (o OutputMarks) check(refuse configtable.Refuse) {
	const high, low = configtable.Field("OutputMarks.High"), configtable.Field("OutputMarks.Low")
	if o.High > 0 && o.Low > o.High {
		refuse(string(low), "%s is %d, above %s, which is %d: set less", low, o.Low, high, o.High)
	}
	if o.OnWritable == nil && o.High != 0 {
		refuse(string(high), "%s is %d, and the program has no func that stops a producer: set both, or neither", high, o.High)
	}
}

// Writable reports whether a producer may write to the connection, see [OutputMarks]. If the output
// has passed a mark, it calls OnWritable first. Without marks, and if the connection is exempt, it
// is true. If the connection is closed or is being reaped, it is false.
func (c Conn) Writable() bool {
	s := c.state()
	if s == nil || c.loop.closing.conn == s {
		return false
	}
	marker{c.loop}.compare(c.id, s)
	s = c.state() // OnWritable may have closed it
	return s != nil && c.loop.Ends.Of(c.id) == nil && !s.Is(connstate.Unwritable)
}

// marks are what a loop knows of OutputMarks. The loop goroutine owns all of it.
type marks struct {
	high, low  int                   // 0 without marks
	onWritable func(gnet.Conn, bool) // stays without marks, for connections that are not writable
	waiting    map[uint32]struct{}   // connections with output, or that are not writable
	round      []uint32              // of them, those that this round has not reached
	due        mono.Time             // when the next round begins; never if none waits
}

func (m *marks) follow(o OutputMarks) {
	m.high, m.low = o.High, cmp.Or(o.Low, o.High/2)
	if m.high > 0 {
		m.onWritable = o.OnWritable
	}
	if m.waiting == nil {
		m.waiting, m.due = make(map[uint32]struct{}), never
	}
}

// revisit says whether the next rounds compare the output of a connection. The first round is in
// the next tick.
func (m *marks) revisit(id uint32, on bool, clock *mono.Clock) {
	if !on {
		delete(m.waiting, id)
		return
	}
	m.waiting[id] = struct{}{}
	m.due = min(m.due, clock.Read()+1)
}

// A marker is a loop that compares outputs with marks.
type marker struct{ *loop }

// expectOutput makes the next rounds compare the output of a connection, if there are marks.
func (l marker) expectOutput(id uint32) {
	if m := &l.outputs.marks; m.high > 0 {
		m.revisit(id, true, l.clock)
		l.planMarks()
	}
}

// planMarks makes sure that a task comes in time for the next round.
func (l marker) planMarks() {
	l.task.setDue(min(l.task.due, l.outputs.marks.due))
}

// compareAll compares the outputs of all connections that wait, once a tick, until its time is
// spent.
func (l marker) compareAll(spent func() bool) {
	m := &l.outputs.marks
	if l.clock.Read() < m.due {
		return
	}
	if len(m.round) == 0 {
		m.round = slices.AppendSeq(m.round, maps.Keys(m.waiting))
	}
	for len(m.round) > 0 {
		last := len(m.round) - 1
		id := m.round[last]
		m.round = m.round[:last]
		if _, waits := m.waiting[id]; waits {
			l.compare(id, l.At(id))
		}
		if last > 0 && spent() {
			return
		}
	}
	if m.due = never; len(m.waiting) > 0 {
		m.due = l.clock.Read() + 1
	}
}

// compare compares the output of a connection with the marks, and tells OnWritable if it has passed
// one.
func (l marker) compare(id uint32, s *conn) {
	m, opened := &l.outputs.marks, s.Opened()
	if l.Ends.Of(id) != nil { // gnet will close it
		m.revisit(id, false, l.clock)
		return
	}
	for range 2 { // OnWritable may write
		marked, n := m.high > 0 && !s.Is(connstate.Exempt), s.Front.OutboundBuffered()
		stopped := s.Is(connstate.Unwritable)
		stop := marked && (n > m.high || stopped && n > m.low)
		m.revisit(id, marked && n > 0, l.clock)
		if stop == stopped {
			break
		}
		l.setWritable(s, !stop)
		if m.onWritable(l.layers.outer(s), !stop); s.Opened() != opened {
			return
		}
		l.allowsOutput(id, s, n) // so that a large answer begins; a look closes what is not allowed
	}
	l.planMarks()
}

// setWritable records and counts whether a connection is writable.
func (l marker) setWritable(s *conn, writable bool) {
	if s.Is(connstate.Unwritable) {
		l.Counters.Unwritable--
	}
	if s.SetWritable(writable); !writable {
		l.Counters.Unwritable++
	}
}

// checkReturned compares the output of a connection with the marks after a call of the handler, and
// checks it with what OnWritable has written. It knows what waited before. It returns the Action of
// that call, or one that closes the connection.
func (l marker) checkReturned(c gnet.Conn, before int, action gnet.Action) gnet.Action {
	if action == gnet.None {
		_, id, s := l.find(c)
		l.compare(id, s)
		if r, _, _ := l.find(c); r == nil { // OnWritable has closed it
			return gnet.None
		}
	}
	return l.checkOutput(c, before, action)
}
