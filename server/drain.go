package server

import (
	"context"
	"fmt"
	"time"
)

// Drain says how a server stops, so that its clients do not all come back elsewhere at once. Those that were active within the last
// second are busy, the others idle. OnClose of those that it closes gets idle.Drained; of those that are left at its end, which are
// closed all at once, nil. Whoever wants to connect meanwhile waits until the server is gone, and is refused then. With SharePort,
// and where the process lacks CAP_NET_ADMIN, he is closed at once, so that he tries again and may be sent to another server, which with
// SharePort can listen on the address already. The zero Drain is none: all connections are closed at once.
type Drain struct {
	// Delay is how long the server goes on as before, for those to notice that send new clients to it.
	Delay time.Duration
	// Spread is the time after it over which idle connections are closed, evenly. Nobody is accepted any more. A peer that sends
	// something in the moment in which it is closed may see a reset instead of an end.
	Spread time.Duration
	// Timeout is how long after Delay all connections are gone: those that are busy are closed evenly between Spread and Timeout,
	// and those that idle.Reaper.Hold was called for at its end. If zero, it is twice Spread.
	Timeout time.Duration
}

// maxDrain is the longest time that a drain may take.
const maxDrain = 30 * 24 * time.Hour

func (d *Drain) check() error {
	if d.Timeout == 0 && d.Spread <= maxDrain {
		d.Timeout = 2 * d.Spread
	}
	if d.Delay < 0 || d.Spread < 0 || d.Spread > maxDrain || d.Timeout < d.Spread || d.Timeout > maxDrain {
		return fmt.Errorf("server: Config.Drain is %v, %v and %v: set none below zero, Timeout not below Spread, and at most %v",
			d.Delay, d.Spread, d.Timeout, maxDrain)
	}
	return nil
}

// drainLook is how often is looked whether all connections are gone.
const drainLook = 10 * time.Millisecond

// drain lets connections go. It returns when all are gone, when time is up, or when one of the contexts is over.
func (h *host) drain(ctx context.Context, d Drain) {
	if !sleep(ctx, d.Delay) || d.Timeout == 0 {
		return
	}
	h.log.Info("draining", "connections", h.Connections(), "spread", d.Spread, "timeout", d.Timeout)
	h.draining.Store(true)
	if !h.shares { // otherwise the system would go on to send newcomers here, and drop them
		h.gate.shutForGood()
	}
	last := max(d.Timeout-d.Timeout/32-3*h.Config().Tick, d.Timeout/2, 1) // closes may be two ticks late, and ten thousand take a while
	if err := h.Drain(min(d.Spread, last), last); err != nil {
		panic("BUG: " + err.Error()) // it was checked
	}
	began := time.Now()
	for h.Connections() > 0 && time.Since(began) < d.Timeout && sleep(ctx, drainLook) {
	}
	if n := h.Connections(); n > 0 {
		h.log.Warn("the drain is over, and those that are left are cut off", "connections", n, "after", time.Since(began))
		return
	}
	h.log.Info("drained", "after", time.Since(began))
}

// sleep reports whether a time has passed before a context is over.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
