package server

import (
	"cmp"
	"context"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

// Drain says how a server closes its connections when it stops, so that its clients do not all
// reconnect elsewhere at once. A connection is busy if it was active within the last second, and
// idle otherwise. OnClose gets idle.Drained for a connection that the drain closes, and nil for one
// that is left at its end. The zero Drain is none: all connections are closed at once.
type Drain struct {
	// Delay is the time for which the server goes on as before. In this time load balancers notice
	// that the server stops.
	Delay time.Duration
	// Spread is the time after Delay in which idle connections are closed, evenly spread. New
	// connections are not served any more. A peer that sends something at the moment of the close
	// may see a reset instead of an end.
	Spread time.Duration
	// Timeout is the time after Delay in which all connections are closed: the busy ones evenly
	// spread between Spread and Timeout, held ones at its end. Exempt connections keep the server
	// until then; they are closed without a goodbye, and OnClose gets nil. If zero, it is twice
	// Spread, at most 30 days.
	Timeout time.Duration
	// KeepListening keeps the listeners after Delay, without accepting. New clients wait in the
	// queue of the kernel. Set it if the sockets outlive the server, as those of systemd do: the
	// next server accepts the clients that wait. If false, the listeners are closed after Delay.
	// New clients are refused at once then, so that they can try another server. Listeners without
	// SetDeadline are closed in any case. If clients wait for room when the drain begins, up to two
	// of them for each event loop and listener are closed: the server has accepted these already.
	KeepListening bool
}

func (d *Drain) check() error {
	d.Timeout = cmp.Or(d.Timeout, min(2*d.Spread, max(d.Spread, configtable.LongestDrain)))
	if d.Timeout >= 0 && d.Timeout < d.Spread {
		return errorf("server: %s is %v, less than %s of %v: set a longer one, or 0 for twice as long",
			field("Drain.Timeout"), d.Timeout, field("Drain.Spread"), d.Spread)
	}
	return nil
}

// drainPoll is the interval at which a drain checks whether all connections are gone.
const drainPoll = 10 * time.Millisecond

// drain closes connections. It returns when all are gone, when the time is up, or when the context
// is done.
func (h *engineHandler) drain(ctx context.Context, d Drain) {
	if !sleep(ctx, d.Delay) || d.Timeout == 0 {
		return
	}
	log := h.acceptors.log
	log.Info("draining", "connections", h.Connections(), "spread", d.Spread, "timeout", d.Timeout)
	h.acceptors.stop(!d.KeepListening)
	// A close may be two ticks late, and ten thousand closes take a while.
	last := max(d.Timeout-d.Timeout/32-3*h.Config().Tick, d.Timeout/2, 1)
	if err := h.Drain(min(d.Spread, last), last); err != nil {
		panic("BUG: " + err.Error()) // check has checked it
	}
	began := time.Now()
	for h.Connections() > 0 && time.Since(began) < d.Timeout && sleep(ctx, drainPoll) {
	}
	if n := h.Connections(); n > 0 {
		log.Warn("the drain is over: the remaining connections are closed at once", "connections", n, "after", time.Since(began))
		return
	}
	log.Info("drained", "after", time.Since(began))
}
