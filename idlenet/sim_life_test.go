package idlenet

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"

	"github.com/idlewheel/idlewheel/reap"
)

// A simTruth is the physical history of a connection so far.
type simTruth struct {
	arrival  time.Duration // the last byte of the peer, or the opening if that is later
	handled  time.Duration // the last byte was read, or was found waiting
	anew     time.Duration // Accept, Touch or Release has returned
	anewFrom time.Duration // start of that call
	newSent  time.Duration // new bytes were sent
	anySent  time.Duration // bytes were sent, retransmissions included
	took     time.Duration // the peer has acknowledged bytes
	tookSome time.Duration // the peer has acknowledged bytes while more waited
	waits    time.Duration // output waits in the kernel since then, 0 if none waits
	message  time.Duration // a message is open since then, 0 if none is open
	lastPing time.Duration
	pings    int // since the peer was last heard
	holds    int
	ready    bool
	received int
	unread   bool
	resent   bool
	isOver   bool                               // the peer has ended the connection
	open     int                                // connections
	events   [verdict.IdleReasons]time.Duration // calls of OnIdle
	raised   [verdict.IdleReasons]time.Duration // the verdicts of these events
}

// heard returns the latest instant from which the Listener may count silence.
func (t *simTruth) heard() time.Duration { return max(t.arrival, t.handled, t.anew) }

// A simLife is the knowledge of the oracle about one connection. The oracle judges by the contract
// and by physical events. It does not know how the Listener judges.
type simLife struct {
	w    *simWorld
	id   int
	sock *simSock
	conn *simConn
	c    net.Conn // the connection as the server has it, perhaps in a layer
	simServer

	now       simTruth
	asked     simTruth      // as of the last question to the kernel
	judged    time.Duration // time of the last question
	askedFrom time.Duration // the clock was read before the last question
	askedCfg  Config

	openedFrom time.Duration // Accept was called
	openedAt   time.Duration // Accept has returned; 0 until then
	reason     *ReapError    // OnReap was called
	endedAt    time.Duration
	endedFrom  time.Duration // an instant before the end
	mustEnd    bool          // OnIdle has returned Close
	told, cuts int
	toldAt     time.Duration
	goodbyes   int
	kickedAt   time.Duration // Kick was called
	kicked     time.Duration // it has ended the connection
	keeps      bool          // OnIdle keeps the connection
	closedAt   time.Duration
	gone       bool // the Listener has forgotten the connection
	goneAt     time.Duration
	bytes      []simBytes // for MinRate
}

type simBytes struct {
	at time.Duration
	n  int
}

func (l *simLife) isOpen() bool { return l.openedAt != 0 && l.closedAt == 0 }

// calledFor checks that the Listener has not forgotten the connection.
func (l *simLife) calledFor(what string) {
	if l.gone {
		l.w.violate(l, "nothing is called for a connection that was dropped", what)
	}
}

// The methods below record events of the connection.

func (l *simLife) opened() {
	l.openedAt = l.w.now
	t := &l.now
	t.anewFrom, t.anew = l.openedFrom, l.openedAt
	t.newSent, t.anySent, t.arrival = max(t.newSent, l.openedFrom), max(t.anySent, l.openedAt), max(t.arrival, l.openedFrom)
	if l.w.cfg.MinRate.Always {
		t.message = l.openedFrom
	}
	l.w.lives++
	l.w.trace(l, "opened")
}

func (l *simLife) arrived(n int) {
	t := &l.now
	t.arrival, t.unread, t.pings = l.w.now, true, 0
	t.received += n
	if l.w.cfg.MinRate.BytesPerSecond > 0 {
		l.bytes = append(l.bytes, simBytes{l.w.now, n})
	}
	l.w.trace(l, "bytes arrive", n)
}

func (l *simLife) read(int) {
	l.now.unread = l.sock.unread > 0
	if l.w.cfg.Stamp {
		l.now.handled = l.w.now
	}
}

// question is called when the kernel is asked about the connection.
func (l *simLife) question() {
	if l.now.unread = l.sock.unread > 0; l.now.unread {
		l.now.handled = l.w.now
	}
	l.now.resent, l.now.open = l.sock.retransmits > 0, l.w.ln.Connections()
	s := l.w.ln.shard(l.conn)
	if id, ok := s.ids.find(address(l.conn), s); ok && s.Ends.Of(id) != nil {
		return // the verdict stands
	}
	l.now.isOver = l.sock.isOver()
	l.asked, l.judged, l.askedCfg = l.now, l.w.now, l.w.cfg
}

func (l *simLife) wrote() {
	l.check()
	l.now.newSent, l.now.anySent = l.w.now, l.w.now
}

func (l *simLife) resent() {
	l.check()
	l.now.anySent = l.w.now
}

// took is called when the peer has acknowledged bytes.
func (l *simLife) took(moreWaits bool) {
	l.check()
	l.now.took = l.w.now
	if moreWaits {
		l.now.tookSome = l.w.now
	}
}

// pending is called when the amount of output has changed.
func (l *simLife) pending() {
	switch {
	case l.sock.queued == 0:
		l.now.waits = 0
	case l.now.waits == 0:
		l.now.waits = l.w.now
	}
}

// restarts makes a call that restarts the idle timeouts.
func (l *simLife) restarts(call func()) {
	l.check()
	from := l.w.now
	call()
	l.now.anewFrom, l.now.anew = from, l.w.now
}

// pinged is called by Ping.
func (l *simLife) pinged() {
	w, t, h := l.w, &l.asked, &l.askedCfg.Heartbeat
	// A stop after the verdict may delay it.
	lost := w.unix && l.sock.rst // the bytes that the server has not read
	if due := max(t.arrival, l.openedFrom) + h.Interval; l.judged < due && w.kind == simCalm && !lost {
		w.violate(l, fmt.Sprintf("no ping before %v", due), fmt.Sprintf("a ping is sent, judged at %v", l.judged))
	}
	w.trace(l, "ping")
	w.pings++
	l.now.pings++
	l.now.lastPing = min(w.spawnedAt, l.judged)
	l.sock.pings++
	l.sock.write(4)
}

// idle is called by OnIdle.
func (l *simLife) idle(ev Event) Action {
	w := l.w
	l.calledFor("OnIdle is called")
	w.trace(l, "OnIdle", ev.Reason)
	if l.reason != nil {
		w.violate(l, "OnIdle is not called after OnReap", ev.Reason.Error())
	}
	if why := l.earlyIdle(ev.Reason); why != "" {
		w.violate(l, why, fmt.Sprintf("OnIdle is called, judged at %v", l.judged))
	}
	if last := l.now.raised[ev.Reason-1]; last > max(l.asked.anew, l.asked.arrival, l.asked.anySent)+w.slack() &&
		ev.First && w.updatedAt == 0 {
		w.violate(l, "the first event comes after activity", fmt.Sprintf("%+v after one at %v", ev, last))
	}
	w.events++
	l.now.events[ev.Reason-1], l.now.raised[ev.Reason-1] = w.now, l.judged
	w.maybeSlow()
	if l.keeps {
		return Keep
	}
	l.mustEnd = l.isOpen() && !w.cfg.ObserveOnly
	return Close
}

// reaped is called by OnReap.
func (l *simLife) reaped(e *ReapError) {
	w := l.w
	w.trace(l, "OnReap", e)
	l.calledFor("OnReap is called")
	w.reaps[e.Reason]++
	l.mustEnd = false
	switch {
	case l.reason != nil:
		w.violate(l, "OnReap is called once", fmt.Sprintf("%v after %v", e, l.reason))
	case w.ln.Reason(l.c) != e:
		w.violate(l, "Reason returns the error that OnReap gets", fmt.Sprintf("%v, not %v", w.ln.Reason(l.c), e))
	case l.askedCfg.ObserveOnly && e.Reason != reap.Drained && e.Reason != reap.Kicked && e.Reason != reap.Shed:
		w.violate(l, "ObserveOnly ends no connection", e.Error())
	}
	if why := l.early(e); why != "" {
		w.violate(l, why, fmt.Sprintf("ended, judged at %v: %v", l.judged, e))
	}
	if o := w.netDown; w.kind == simNetworkOut && w.now < o.to+min(o.length(), max(w.grace(), 0)) {
		w.violate(l, "no living connection ends after an outage of the network", e.Error())
	}
	l.reason, l.endedAt, l.endedFrom = e, w.now, l.judged
	if e.Reason == reap.Kicked {
		l.endedFrom = l.kickedAt
	}
	w.maybeSlow()
}

// told is called when the Listener sets a read deadline.
func (l *simLife) toldToClose(t time.Time) {
	w := l.w
	w.trace(l, "SetReadDeadline")
	l.calledFor("SetReadDeadline is called")
	w.simCounts.told++
	l.toldAt = w.now
	if l.told++; l.told > 1 || l.reason == nil || w.isReset(l.reason.Reason) || t.After(time.Unix(1, 0)) {
		w.violate(l, "one read deadline in the past is set after OnReap, unless the connection is reset",
			fmt.Sprintf("%v is set, reason %v", t, l.reason))
	}
}

// cut is called when the Listener closes the connection.
func (l *simLife) cut() {
	w := l.w
	w.trace(l, "closed by the Listener")
	l.calledFor("Close is called")
	if l.openedAt == 0 {
		return // it is refused
	}
	l.check()
	w.simCounts.cut++
	switch l.cuts++; {
	case l.reason == nil || l.cuts > 1:
		w.violate(l, "the Listener closes a connection once, after its end", "closed")
	case w.isReset(l.reason.Reason):
	case w.now < l.endedFrom+w.cfg.CloseGrace+w.wasOut(w.now).since(l.toldAt):
		w.violate(l, "the server gets CloseGrace", fmt.Sprintf("closed, ended at %v (outages %v)", l.endedAt, w.wasOut(w.now)))
	}
	l.leaves()
}

// leaves records that the connection is closed.
func (l *simLife) leaves() {
	if l.closedAt == 0 {
		l.closedAt = l.w.now
		l.w.closed = append(l.w.closed, l)
	}
}

// forgotten reports whether the Listener has forgotten a closed connection, and checks that it
// keeps the reason long enough, and the connection not too long.
func (l *simLife) forgotten() bool {
	w := l.w
	if w.ln.watches(l.conn) {
		if found := l.closedAt + w.foundWithin(l.closedAt); l.reason == nil && w.now > found && w.judging {
			w.violate(l, fmt.Sprintf("a closed connection is dropped by %v", found), fmt.Sprintf("it is kept at %v", w.now))
		}
		return false
	}
	if kept := l.closedAt + time.Minute; l.reason != nil && w.now < kept {
		w.violate(l, fmt.Sprintf("the reason is kept until %v", kept), "it is dropped")
	}
	w.trace(l, "forgotten")
	l.gone, l.goneAt = true, w.now
	w.dropped = append(w.dropped, l)
	return true
}

// checkReason checks that Reason returns what OnReap got.
func (l *simLife) checkReason() {
	if l.gone || l.openedAt == 0 {
		return
	}
	if got := l.w.ln.Reason(l.c); got != l.reason && l.reason != nil {
		l.w.violate(l, "Reason returns the error that OnReap got", fmt.Sprintf("%v, not %v", got, l.reason))
	}
}

func (w *simWorld) isReset(r Reason) bool { return slices.Contains(w.cfg.Reset, r) }
