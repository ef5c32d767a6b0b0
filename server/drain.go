package server

import (
	"context"
	"time"
)

// drainPoll is the interval at which a drain checks whether all connections are gone.
const drainPoll = 10 * time.Millisecond

// drain closes connections, after it has stopped accepting. It returns when all are gone, when the
// time is up, or when the context is done.
func (a *acceptors) drain(ctx context.Context, d Drain) {
	if !sleep(ctx, d.Delay) || d.Timeout == 0 {
		return
	}
	r, log := a.room.reaper, a.log
	log.Info("draining", "connections", r.Connections(), "spread", d.Spread, "timeout", d.Timeout)
	a.stop(!d.KeepListening)
	// A close may be two ticks late, and ten thousand closes take a while.
	last := max(d.Timeout-d.Timeout/32-3*r.Config().Tick, d.Timeout/2, 1)
	_ = r.Drain(min(d.Spread, last), last) // check has checked them
	began := time.Now()
	for r.Connections() > 0 && time.Since(began) < d.Timeout && sleep(ctx, drainPoll) {
	}
	if n := r.Connections(); n > 0 {
		log.Warn("the drain is over: the remaining connections are closed at once", "connections", n, "after", time.Since(began))
		return
	}
	log.Info("drained", "after", time.Since(began))
}
