package idle

import (
	"fmt"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// A simTimer is the knowledge of the oracle about one After or Every of a connection.
type simTimer struct {
	earliest time.Duration // of the next call
	latest   time.Duration // it is due then at the latest; a call for it may stand for earlier ones
	every    time.Duration
	ended    bool // it was called, or stopped
	stop     func() bool
}

// setTimers sets timers of a connection in a quarter of the worlds.
func (h *simHandler) setTimers(c gnet.Conn) {
	w, life := h.w, c.(*simConn).sock.life
	if w.seed%4 != 0 || !w.one(2) {
		return
	}
	for range 1 + w.rng.IntN(3) {
		t := &simTimer{}
		d := w.upTo(w.longest)
		add := func() {
			call := func(gnet.Conn) { h.timer(c.(*simConn), t) }
			conn := handle(w.reaper, c)
			if w.one(2) {
				t.every = d
				t.stop = conn.Every(d, call)
			} else {
				t.stop = conn.After(d, call)
			}
		}
		t.earliest = w.now + d
		add()
		t.latest = w.now + d
		life.timers = append(life.timers, t)
	}
}

// timer is called by a timer.
func (h *simHandler) timer(c *simConn, t *simTimer) {
	w, life := h.w, c.sock.life
	w.timerCalls++
	w.trace(life, "timer", t.earliest, t.every)
	switch {
	case !life.isOpen:
		w.violate(life, "no timer is called after OnClose", "a timer is called")
	case t.ended:
		w.violate(life, "no timer is called after its end", "it is called again")
	case w.now < t.earliest:
		w.violate(life, fmt.Sprintf("no timer is called before %v", t.earliest), fmt.Sprintf("it is called at %v", w.now))
	}
	life.checkTimer(t)
	if t.every == 0 {
		t.ended = true
	} else {
		t.earliest += t.every
		t.latest += t.every * (1 + max(w.now-t.latest, 0)/t.every)
	}
	switch {
	case w.one(8):
		_ = c.Close()
	case w.one(8) && t.every > 0:
		h.stopTimer(life, t)
	case w.one(8) && len(life.timers) > 0:
		h.stopTimer(life, life.timers[w.rng.IntN(len(life.timers))])
	case w.one(16) && w.slow > 0 && !w.locked:
		w.sleep(w.upTo(w.slow))
	}
}

func (h *simHandler) stopTimer(l *simLife, t *simTimer) {
	if stopped := t.stop(); stopped == t.ended && l.isOpen {
		h.w.violate(l, fmt.Sprintf("stop returns %v", !t.ended), fmt.Sprintf("it returns %v", stopped))
	}
	t.ended = true
}

// checkTimers reports a violation if a timer of an open connection is overdue.
func (l *simLife) checkTimers() {
	for _, t := range l.timers {
		l.checkTimer(t)
	}
}

func (l *simLife) checkTimer(t *simTimer) {
	if t.ended || l.w.failure != nil || l.w.now <= t.latest+l.w.slack() {
		return
	}
	if allowed := t.latest + l.w.slack() + l.absence(t.latest); l.w.now > allowed {
		l.w.violate(l, fmt.Sprintf("a timer is called by %v (due at %v)", allowed, t.latest), fmt.Sprintf("it is %v", l.w.now))
	}
}
