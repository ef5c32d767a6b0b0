package sim

import (
	"cmp"
	"fmt"
	"time"

	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// A Truth is the physical history of a connection so far.
type Truth struct {
	arrival   time.Duration // the last byte of the peer, or the opening if that is later
	came      time.Duration // the last byte of the peer
	handled   time.Duration // the server has handled the last byte, or it was found waiting
	returned  time.Duration // the handler has returned after the last byte that it read
	anew      time.Duration // the opening, Touch, Release or Exempt has returned
	anewFrom  time.Duration // start of that call
	newSent   time.Duration // new bytes were sent
	anySent   time.Duration // bytes were sent, retransmissions included
	dated     time.Duration // the kernel's date of new bytes: their last retransmission
	took      time.Duration // the peer has acknowledged bytes
	tookSome  time.Duration // the peer has acknowledged bytes while more waited
	waits     time.Duration // output waits in the kernel since then, 0 if none waits
	changed   time.Duration // the amount of output has changed
	soft      time.Duration // the loop buffers more than the soft limit since then, or 0
	softFrom  time.Duration // the same, ignoring dips that are too short to be seen
	dip       time.Duration // start of the last dip
	large     time.Duration // one write has added more than the hard limit then, and more waits; or 0
	message   time.Duration // a message is open since then, 0 if none is open
	finished  time.Duration // the FIN or the reset of the peer has arrived; 0 if none has
	lastPing  time.Duration
	pings     int // since the peer was last heard
	received  int
	holds     int
	outbound  int  // output in the buffer of the server
	output    int  // outbound, and what waits in a kernel that tells it
	seen      int  // outbound when a handler returned last, or less
	buffered  int  // the same as outbound, at its last change
	least     int  // of buffered since large
	open      int  // connections of the server
	resent    bool // bytes in flight were retransmitted, at the last question
	own       *Timeouts
	set       *Settings                          // in force then; nil if they are those of now
	events    [verdict.IdleReasons]time.Duration // verdicts of the last idle events
	delivered [verdict.IdleReasons]time.Duration // calls of OnIdle for them

	exempt, ready, ended, unread, serving, noPings bool
}

// heard returns the latest instant from which the server may count silence.
func (t *Truth) heard() time.Duration { return max(t.arrival, t.handled, t.anew) }

// Timeouts are the idle timeouts of one connection, in the order of the reasons.
type Timeouts [verdict.IdleReasons]time.Duration

// A Conn is the server's end of a connection.
type Conn interface {
	Handle() Handle        // by which the server's code tells of its work
	Readable()             // there is input
	Writable()             // there is room for output
	OutboundBuffered() int // output in the buffer of the server
	Decided() bool         // the verdict about the connection stands
	CheckOwn()             // checks promises of this front end, before each event
}

// A Handle is the part of Conn that both front ends have.
type Handle interface {
	Ready()
	Touch()
	Hold()
	Release()
	Exempt(on bool)
	BeginMessage()
	EndMessage()
}

// A Life is the knowledge of the oracle about one connection.
type Life struct {
	w     *World
	ID    int
	Loop  *Loop
	Sock  *Sock
	Conn  Conn
	Keeps bool // OnIdle keeps the connection

	Network int // of two: 0 for the one that fails

	now       Truth
	asked     Truth         // as of the last question to the kernel
	prior     Truth         // as of an earlier question
	Judged    time.Duration // time of the last question
	chosen    Truth         // as of the last question for making room, if the World Admits
	chosenAt  time.Duration
	askedFrom time.Duration // the verdict is as of this time; a stop may delay the question itself

	answeredAt time.Duration // the server has read its clock after the last question
	acceptedAt time.Duration // the kernel has accepted the connection
	OpenedAt   time.Duration // the opening has begun, or has returned if it has
	OpenedFrom time.Duration // the server's code for the opening has returned
	IsOpen     bool          // it was opened and not closed
	closedAt   time.Duration
	Ended      *reap.Error   // the front end has ended the connection
	closing    reap.Reason   // OnIdle has returned Close for it
	KickedAt   time.Duration // Kick was called
	ownAt      time.Duration // SetTimeouts was called
	resumedAt  time.Duration // Exempt(false) was called
	goodbyes   int           // for the maximum age
	earlyFound uint32        // early segments at the last question that found one
	bytes      []sample      // the latest bytes, for MinRate
	outputs    []sample      // the output in the buffer of the loop from each instant on
	takes      []sample      // acknowledged bytes, for the hard limit
}

// A sample is a number of bytes at an instant.
type sample struct {
	at time.Duration
	n  int
}

// set returns the settings that apply by what is known.
func (l *Life) set(t *Truth) *Settings { return cmp.Or(t.set, l.w.Set) }

// timeouts returns the idle timeouts that apply by what is known.
func (l *Life) timeouts(t *Truth) Timeouts {
	if t.own != nil {
		return *t.own
	}
	s := l.set(t)
	return Timeouts{s.ReadTimeout, s.WriteTimeout, s.AllTimeout}
}

// Opening is called before the front end is told of the connection.
func (l *Life) Opening() {
	now := l.w.Now
	l.OpenedFrom, l.OpenedAt, l.now.anew, l.now.arrival, l.now.newSent, l.now.anySent = now, now, now, now, now, now
	if l.now.received == 0 {
		l.now.came = now
	}
}

// Open is called when the server has the connection.
func (l *Life) Open() {
	l.w.Trace(l, "opened")
	l.w.noteHeard()
	l.IsOpen = true
	l.w.N["lives"]++
	l.w.Open++
	staying, most := l.w.Open, l.w.Set.MaxConnections
	if most == 0 || staying <= most || l.w.observes {
		return
	}
	for _, other := range l.w.All {
		if other.IsOpen && other.Conn.Decided() {
			staying--
		}
	}
	if staying > most {
		l.w.Violate(l, "no more connections than MaxConnections", "there are %d", staying)
	}
}

// Opened is called when the server's code for the opening has returned.
func (l *Life) Opened() {
	l.OpenedAt, l.now.anew, l.now.anewFrom = l.w.Now, l.w.Now, l.OpenedFrom
	if l.w.Set.MinRate.Always {
		l.now.message = l.OpenedFrom
	}
}

// Closed is called when the connection is closed.
func (l *Life) Closed() {
	if !l.IsOpen {
		l.w.Violate(l, "a connection is closed once", "it is closed again")
	}
	l.IsOpen, l.closedAt = false, l.w.Now
	l.w.Open--
}

func (l *Life) arrived(n int) {
	l.now.arrival, l.now.came, l.now.unread = l.w.Now, l.w.Now, true
	l.now.received += n
	l.now.pings = 0
	l.w.noteHeard()
	if l.w.Set.MinRate.BytesPerSecond > 0 {
		l.bytes = append(l.bytes, sample{l.w.Now, n})
	}
	l.w.Trace(l, "bytes arrive", n)
}

// Read is called when the front end has seen that bytes were read, or when a question finds some.
func (l *Life) Read() {
	if !l.IsOpen {
		return
	}
	l.now.handled = l.w.Now
	if l.Loop.isQuiet() {
		l.Loop.quietAt = l.w.Now
	}
	l.Loop.heardAt = l.w.Now
	l.w.noteHeard()
}

// question is called when the kernel is asked about the connection.
func (l *Life) question() {
	if l.now.unread = l.Sock.Unread > 0; l.now.unread {
		l.Read()
	}
	if s := l.Sock; s.gap && s.early != l.earlyFound { // it came with an acknowledgement
		l.earlyFound, l.now.handled = s.early, max(l.now.handled, s.answered)
	}
	if l.Conn.Decided() {
		return
	}
	l.now.outbound, l.now.open, l.now.resent = l.Conn.OutboundBuffered(), l.w.Open, l.Sock.retransmits > 0
	l.now.output = l.now.outbound + When(l.w.Family != BSD, l.Sock.Queued)
	if !l.w.Traits.Loops { // closed connections count until they are found
		l.now.open = l.w.Server.Connections()
	}
	if l.now.newSent > l.asked.newSent || l.now.took > l.asked.took {
		l.now.dated = l.now.anySent
	}
	asked := l.now
	asked.ended, asked.set = l.Sock.IsOver(), cmp.Or(l.Loop.Set, l.w.Set)
	if l.w.Admits {
		l.chosen, l.chosenAt = asked, l.w.Now
		return
	}
	if l.w.Now-l.Judged > l.w.Set.Tick/2 {
		l.prior = l.asked
	}
	l.asked, l.Judged = asked, l.w.Now
}

// pending is called when the amount of output in the kernel has changed.
func (l *Life) pending() {
	l.now.changed = l.w.Now
	l.now.waits = When(l.Sock.Queued > 0, cmp.Or(l.now.waits, l.w.Now))
}

// Buffers is called when the amount of output in the buffer of the loop has changed. The front end
// cannot see dips below the soft limit between two checks.
func (l *Life) Buffers(n int) {
	l.Check()
	t, limit := &l.now, l.w.Set.OutputLimit
	if limit.Total > 0 {
		l.outputs = append(l.outputs, sample{l.w.Now, n})
	}
	if n < t.seen {
		t.seen = n
		l.w.watchOutput()
	}
	t.changed = l.w.Now
	if t.buffered <= limit.Hard || n <= limit.Hard {
		t.large, t.least = When(limit.Hard > 0 && n-t.buffered > limit.Hard, l.w.Now), n
	}
	t.least, t.buffered = min(t.least, n), n
	above := limit.Soft > 0 && n > limit.Soft
	switch unseen := limit.SoftFor/4 + 3*l.w.Set.Tick; {
	case above && t.soft == 0:
		if t.soft = l.w.Now; t.softFrom == 0 || t.soft-t.dip > unseen+l.absence(t.dip) {
			t.softFrom = t.soft
		}
	case !above && t.soft != 0:
		t.soft, t.dip = 0, l.w.Now
	}
}

func (l *Life) ended()  { l.Check(); l.now.ended = true }
func (l *Life) resent() { l.Check(); l.now.anySent = l.w.Now }
func (l *Life) wrote()  { l.resent(); l.now.newSent = l.w.Now }

// took is called when the peer has acknowledged bytes.
func (l *Life) took(n int, moreWaits bool) {
	l.Check()
	if l.w.Set.OutputLimit.Hard > 0 {
		l.takes = append(l.takes, sample{l.w.Now, n})
	}
	l.now.took, l.now.changed = l.w.Now, l.w.Now
	if moreWaits {
		l.now.tookSome = l.w.Now
	}
}

// LosesInput reports whether a reset of the peer has discarded bytes that the kernel does not date.

func (l *Life) Returning()              { l.now.returned = l.w.Now } // a handler that has read
func (l *Life) LastByte() time.Duration { return l.now.arrival }
func (l *Life) IsExempt() bool          { return l.now.exempt }
func (l *Life) LosesInput() bool        { return l.Sock.Rst && (l.w.Family != TCP || l.Sock.early > 0) }

// The methods below make calls of the server's code, and record them.

func (l *Life) Ready()   { l.Conn.Handle().Ready(); l.Check(); l.now.ready = true }
func (l *Life) Hold()    { l.Conn.Handle().Hold(); l.Check(); l.now.holds++ }
func (l *Life) Touch()   { l.restarted(l.call(Handle.Touch)) }
func (l *Life) Release() { l.released(l.call(Handle.Release)) }

func (l *Life) Exempt(on bool) {
	from := l.call(func(h Handle) { h.Exempt(on) })
	if l.now.exempt = on; !on {
		l.resumedAt = l.w.Now
	}
	l.restarted(from)
}

// call makes a call that may restart the timeouts. It returns when the call began.
func (l *Life) call(do func(Handle)) (from time.Duration) {
	l.Check()
	from = l.w.Now
	do(l.Conn.Handle())
	return from
}

func (l *Life) restarted(from time.Duration) { l.now.anewFrom, l.now.anew = from, l.w.Now }

func (l *Life) released(from time.Duration) {
	if l.now.holds--; l.now.holds == 0 {
		l.restarted(from)
	}
}

// Serving makes a call of net/http, which says whether it serves a request. The request holds the
// connection, and the first one ends the handshake. There are pings only when the connection is
// hijacked.
func (l *Life) Serving(on, hijacked bool, tell func()) {
	from, was := l.call(func(Handle) { tell() }), l.now.serving
	l.now.noPings = !hijacked
	switch l.now.serving = on; {
	case on && !was:
		l.now.ready = true
		l.now.holds++
	case was && !on:
		l.released(from)
	}
}

// Message begins or ends a message. The process may be stopped in that call.
func (l *Life) Message(open bool) {
	switch {
	case !open && !l.w.Set.MinRate.Always:
		l.now.message = 0
	case !open || l.now.message == 0:
		l.now.message = l.w.Now
	}
	if h := l.Conn.Handle(); open {
		h.BeginMessage()
	} else {
		h.EndMessage()
	}
}

// SetTimeouts is called after a call of SetTimeouts, which rounds up to whole ticks.
func (l *Life) SetTimeouts(t Timeouts) {
	l.Check()
	for k, d := range t {
		t[k] = (d + l.w.Set.Tick - 1) / l.w.Set.Tick * l.w.Set.Tick
	}
	l.now.own, l.ownAt = &t, l.w.Now
}

// Pinged is called when a ping is sent. It was decided at the given time. If the decision is not
// exactly that of the last question, the ping is not checked.
func (l *Life) Pinged(decided time.Duration, exact bool) {
	t, h := &l.asked, &l.asked.set.Heartbeat
	if t.noPings && exact {
		l.w.Violate(l, "no ping is sent while net/http serves a connection", "it is sent at %v", l.w.Now)
	}
	if due := max(t.arrival, t.anewFrom) + h.Interval; l.Judged < due && exact {
		l.w.Violate(l, fmt.Sprintf("no ping before %v", due), "a ping is sent at %v", l.w.Now)
	}
	// Bytes behind a lost segment may have come as late as the last acknowledgement.
	answered := t.pings == 0 || max(t.arrival, t.anewFrom) >= t.lastPing || l.Sock.early > 0
	if due := t.lastPing + h.Retry; !answered && l.Judged < due && exact {
		l.w.Violate(l, fmt.Sprintf("no ping before %v, as the last one is not answered", due), "a ping is sent at %v", l.w.Now)
	}
	l.w.Trace(l, "ping")
	l.w.N["pings"]++
	l.now.pings++
	l.Sock.pings++
	l.now.lastPing = decided
}

// Goodbye is called when the peer gets its goodbye.
func (l *Life) Goodbye(reason *reap.Error) {
	if reason.Grace == 0 && l.w.Traits.Loops { // it comes with the end of the connection
		return
	}
	l.w.Trace(l, "goodbye", reason)
	l.w.N["goodbyes"]++
	l.goodbyes++
	if due := l.OpenedFrom + l.w.Set.MaxAge*9/10; l.goodbyes > 1 || reason.Reason != reap.MaxAge || l.w.Now < due {
		l.w.Violate(l, fmt.Sprintf("one goodbye is said before the end, for the maximum age, after %v", due), "%v", reason)
	}
}
