package server

import (
	"context"
	"time"
)

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
