package idle

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// A simLife is the knowledge of the oracle about one connection. The oracle judges by the contract
// and by physical events. It does not know how the Reaper judges.
type simLife struct {
	w         *simWorld
	id        int
	el        *simLoop
	sock      *simSock
	now       simTruth
	asked     simTruth      // as of the last question to the kernel
	prior     simTruth      // as of an earlier question
	judged    time.Duration // time of the last question
	askedFrom time.Duration // the Reaper judges as of this time; a stop may delay the question itself

	acceptedAt  time.Duration // the kernel has accepted the connection
	openedAt    time.Duration // Reaper.OnOpen has returned
	openedFrom  time.Duration // the handler's OnOpen has returned
	touchFrom   time.Duration
	eventAt     time.Duration // the verdict of the last idle event
	deliveredAt time.Duration // its call of OnIdle, perhaps after a stop
	isOpen      bool          // OnOpen was called and OnClose was not
	isRefused   bool
	wasClosed   bool
	isKicked    bool
	isExempt    bool
	keeps       bool // OnIdle keeps the connection
	messages    int
	changedAt   time.Duration
	resumedAt   time.Duration // Exempt(false) was called
	bytes       []simBytes    // the latest bytes, for MinRate
	timers      []*simTimer
	outputs     []simBytes // the output in the buffer of the loop from each instant on
}

type simBytes struct {
	at time.Duration
	n  int
}

func (l *simLife) timeouts() Timeouts {
	if l.now.own != nil {
		return *l.now.own
	}
	cfg := &l.w.cfg
	return Timeouts{Read: cfg.ReadTimeout, Write: cfg.WriteTimeout, All: cfg.AllTimeout}
}

// The methods below record events of the connection.

func (l *simLife) opening() {
	now := l.w.now
	l.openedAt, l.now.anew, l.now.arrival, l.now.newSent, l.now.anySent = now, now, now, now, now
	if l.now.received == 0 {
		l.now.came = now
	}
}

func (l *simLife) opened() {
	l.openedAt, l.now.anew, l.now.anewFrom = l.w.now, l.w.now, l.openedFrom
	if l.w.cfg.MinRate.Always {
		l.now.message = l.openedFrom
	}
}

func (l *simLife) beforeHearing() { l.check() }

func (l *simLife) arrived(n int) {
	l.now.arrival, l.now.came, l.now.unread = l.w.now, l.w.now, true
	l.now.received += n
	if l.w.cfg.Heartbeat.Interval > 0 && l.w.cfg.Heartbeat.IsPong == nil {
		l.now.pings = 0
	}
	if l.w.cfg.MinRate.BytesPerSecond > 0 {
		l.bytes = append(l.bytes, simBytes{l.w.now, n})
	}
	l.w.trace(l, "bytes arrive", n)
}

func (l *simLife) reading(int) { l.now.unread = l.sock.unread > 0 }

// returning is called when the handler that has read bytes returns.
func (l *simLife) returning() { l.now.returned = l.w.now }

func (l *simLife) read() {
	if l.isOpen {
		l.now.handled = l.w.now
		l.w.heardAt = l.w.now
		l.el.hear()
	}
}

// question is called when the kernel is asked about the connection.
func (l *simLife) question() {
	if l.now.unread = l.sock.unread > 0; l.now.unread {
		l.now.handled = l.w.now
		l.w.heardAt = l.w.now
		l.el.hear()
	}
	l.now.outbound, l.now.open = l.sock.conn.outbound, l.w.open
	l.now.resent = l.sock.retransmits > 0
	if l.now.newSent > l.asked.newSent || l.now.took > l.asked.took {
		l.now.dated = l.now.anySent
	}
	if l.w.now-l.judged > l.w.cfg.Tick/2 {
		l.prior = l.asked
	}
	l.asked, l.judged = l.now, l.w.now
	l.asked.ended = l.sock.rst || l.sock.fin && l.sock.unread == 0
}

func (l *simLife) wrote() {
	l.check()
	l.now.newSent, l.now.anySent = l.w.now, l.w.now
}

func (l *simLife) resent() {
	l.check()
	l.now.anySent = l.w.now
}

func (l *simLife) took() {
	l.check()
	l.now.took, l.now.changed = l.w.now, l.w.now
}

// pending is called when the amount of output in the kernel has changed.
func (l *simLife) pending() {
	l.now.changed = l.w.now
	switch {
	case l.sock.queued == 0:
		l.now.waits = 0
	case l.now.waits == 0:
		l.now.waits = l.w.now
	}
}

// buffered is called when the amount of output in the buffer of the loop has changed.
func (l *simLife) buffered(n int) {
	l.check()
	l.now.changed = l.w.now
	l.noteOutput(n)
	limit := l.w.cfg.OutputLimit
	l.markSoft(limit.Soft > 0 && n > limit.Soft)
}

// markSoft records whether output is above the soft limit. The Reaper cannot see dips between two
// checks.
func (l *simLife) markSoft(above bool) {
	t := &l.now
	switch unseen := l.w.cfg.OutputLimit.SoftFor/4 + 3*l.w.cfg.Tick; {
	case above && t.soft == 0:
		if t.soft = l.w.now; t.softFrom == 0 || t.soft-t.dip > unseen+l.absence(t.dip) {
			t.softFrom = t.soft
		}
	case !above && t.soft != 0:
		t.soft, t.dip = 0, l.w.now
	}
}

func (l *simLife) ended() {
	l.check()
	l.now.ended = true
}

func (l *simLife) ready() { l.check(); l.now.ready = true }

// touching and touched are called before and after a call that restarts the timeouts.
func (l *simLife) touching() {
	l.check()
	l.touchFrom = l.w.now
}

func (l *simLife) touched() { l.now.anewFrom, l.now.anew = l.touchFrom, l.w.now }

func (l *simLife) held() { l.check(); l.now.holds++ }

func (l *simLife) released() {
	if l.now.holds--; l.now.holds == 0 {
		l.touched()
	}
}

func (l *simLife) exempt(on bool) {
	if l.isExempt, l.now.exempt = on, on; !on {
		l.resumedAt = l.w.now
	}
	l.touched()
}

func (l *simLife) message(open bool) {
	if !open {
		l.now.message = 0
	} else if l.now.message == 0 {
		l.now.message = l.w.now
	}
}

func (l *simLife) setTimeouts(t Timeouts) {
	tick := l.w.cfg.Tick
	for _, d := range []*time.Duration{&t.Read, &t.Write, &t.All} {
		*d = (*d + tick - 1) / tick * tick
	}
	l.check()
	l.now.own, l.changedAt = &t, l.w.now
}

// pinged is called when the Reaper sends a ping.
func (l *simLife) pinged() {
	t, h := &l.asked, &l.w.cfg.Heartbeat
	if due := max(t.arrival, t.anewFrom) + h.Interval; l.judged < due {
		l.w.violate(l, fmt.Sprintf("no ping before %v", due), fmt.Sprintf("a ping is sent at %v", l.w.now))
	}
	l.now.pings++
	l.now.lastPing = l.judged
}

// closed is called by OnClose.
func (l *simLife) closed(err error) {
	w := l.w
	if l.wasClosed || !l.isOpen {
		w.violate(l, "one OnClose per OnOpen", "OnClose was called again")
		return
	}
	w.trace(l, "OnClose", err)
	var e *ReapError
	switch {
	case errors.As(err, &e):
		l.reaped(e)
	case errors.Is(err, io.EOF):
		w.eofs++
		l.check()
	case err != nil:
		w.errs++
		l.check()
	default:
		l.check()
	}
	if l.w.failure == nil && e != nil {
		l.check()
	}
	l.isOpen, l.wasClosed = false, true
	w.open--
}
