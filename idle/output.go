package idle

import (
	"github.com/panjf2000/gnet/v2"

	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/reap"
)

// sweepOutput begins or continues a sweep until its time is spent.
func (l *loop) sweepOutput(spent func() bool) {
	w := &l.outputs.sweep
	if !w.isSweeping() {
		switch now := l.clock.Elapsed(); {
		case now >= w.due:
			w.begin(l.Len(), mono.Stamp(l.heardAt.Load()), l.clock.Stamp(), now)
		case isHigh(l.outputs.all, l.outputs.totalLimit) && now >= w.beganAt.Add(l.clock.Tick()):
			w.next, w.end, w.turns, w.beganAt = 0, l.Len(), 0, now // besides those that are due
		}
	}
	for w.isSweeping() && !spent() {
		l.sweepStep(min(w.next+sweepStep, w.end))
	}
}

// sweepStep sweeps the connections before the given id. Without output it reads only two cache
// lines of a connection, so that the processor fetches several connections at a time.
func (l *loop) sweepStep(end uint32) {
	w := &l.outputs.sweep
	for ; w.next < end; w.next++ {
		id := w.next
		s := l.At(id)
		if !s.Used() {
			continue
		}
		waits := s.Front.OutboundBuffered() > 0
		if waits || l.outputs.waiting.has(id) {
			l.noteOutput(id, s)
		}
		if waits {
			marker{l}.expectOutput(id)
		}
		if waits || w.asks(id) {
			l.sweepOne(id, s)
		}
	}
}

// sweepOne starts the polls of a connection if output waits. The kernel may hold output that has
// left the buffer of the event loop.
func (l *loop) sweepOne(id uint32, s *conn) {
	if l.outputs.sweep.polls && s.Judged() && !s.Polled() && (s.Front.OutboundBuffered() > 0 || l.kernel.holdsOutput(s.Front.Fd())) {
		l.Poll(id, s)
	}
}

// outputSteps is the most connections that are checked at a time. At most shedBatch of them are
// closed.
const outputSteps = 256

// areLimited reports whether output of a connection waits, and is limited by Hard or Total or has
// marks. It is small, to be inlined into the path of a message.
func (o *outputs) areLimited(c gnet.Conn) bool {
	return o.hardLimit|o.totalLimit|o.marks.high != 0 && c.OutboundBuffered() > 0
}

// of returns how much output of a connection waits, if that is limited by Hard.
func (o *outputs) of(c gnet.Conn) int {
	if o.hardLimit == 0 {
		return 0
	}
	return c.OutboundBuffered()
}

// checkOutput checks the output that waits for a connection after a call of the handler, and knows
// what waited before. It returns the Action of that call, or one that closes the connection.
func (l *loop) checkOutput(c gnet.Conn, before int, action gnet.Action) gnet.Action {
	_, id, s := l.find(c)
	if action != gnet.None || !l.IsJudged(id, s) {
		return action
	}
	n := c.OutboundBuffered()
	l.outputs.set(id, n)
	if l.allowsOutput(id, s, before) {
		return l.shedOutput(c)
	}
	if l.HasEnded(id, s) { // gnet will report it
		return action
	}
	l.outputs.set(id, 0)
	reason := l.Watcher.NewError(reap.OverLimit)
	reason.Bytes, reason.LimitBytes = n, l.outputs.hardLimit
	return l.endOnReturn(s, reason)
}

// allowsOutput reports whether the output that waits after a call for a connection is within the
// hard limit, or is a large answer, and knows what waited before.
func (l *loop) allowsOutput(id uint32, s *conn, before int) bool {
	n, hard := s.Front.OutboundBuffered(), l.outputs.hardLimit
	return hard == 0 || n <= hard || l.Large.Allows(id, before, n, hard, func() { l.Poll(id, s) })
}

// noteOutput records and returns how much output of a connection waits.
func (l *loop) noteOutput(id uint32, s *conn) (n int) {
	if l.IsJudged(id, s) {
		n = s.Front.OutboundBuffered()
	}
	l.outputs.set(id, n)
	return n
}

// shedOutput closes the connections of the loop with the most output, if all connections together
// have more than OutputLimit.Total. A call of the handler for the given connection has just
// returned; it is nil in a task. The result is the Action for gnet.
func (l *loop) shedOutput(returned gnet.Conn) gnet.Action {
	var own *ReapError // for the given connection, which is closed last
	closed := 0
	for step := 0; step < outputSteps && closed < shedBatch; step++ {
		id, n := l.outputs.waiting.largest()
		if !l.outputs.isOver(n, closed, l.task.more) {
			break
		}
		s := l.At(id)
		counted := n
		if n = l.noteOutput(id, s); n < counted {
			continue // the peer has taken some
		}
		if l.HasEnded(id, s) { // gnet will report it; otherwise a sweep counts it again
			l.outputs.set(id, 0)
			continue
		}
		if !l.outputs.isOver(n, closed, l.task.more) { // it may have taken long
			break
		}
		reason := l.Watcher.NewError(reap.OverLimit)
		reason.Bytes, reason.LimitBytes = s.Front.OutboundBuffered(), l.outputs.totalLimit
		reason.TotalBytes = int(l.outputs.all.Load())
		l.outputs.set(id, 0)
		if closed++; isOf(s, returned) {
			own = reason
		} else if l.End(id, s, reason); l.stop != nil { // OnClose has asked for it
			return gnet.Shutdown
		}
	}
	if own == nil {
		return gnet.None
	}
	r, id := l.table.Find(key(returned))
	if r == nil { // OnClose of another connection has closed it
		return gnet.None
	}
	return l.endOnReturn(l.At(id), own)
}
