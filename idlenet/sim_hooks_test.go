package idlenet

import (
	"net"
	"time"

	"github.com/idlewheel/idlewheel/internal/configtable"
)

// This file has all that the simulation needs to know of the inside of a Listener.

// listen makes the Listener, with the clock, the kernel and the driver of the world. The number of
// shards does not depend on the machine. It fills in the defaults of the Config.
func (w *simWorld) listen(shards int) {
	checked, err := w.cfg.check(w.addr, 0, nil)
	if err != nil {
		panic("BUG: simulated Config: " + err.Error())
	}
	w.Adopt(&w.cfg)
	w.ln = newListener(&simListener{w: w}, checked, w.Elapsed, w.ask)
	w.Server, w.Monitor = w.ln, &w.ln.watch.Monitor
	w.ln.run, w.ln.spawn, w.ln.shards = w.startJudge, w.spawn, nil
	for n := range shards {
		w.ln.shards = append(w.ln.shards, newShard(w.ln, uint32(n+1)))
	}
}

// isLimited reports whether the Config has a limit.
func (w *simWorld) isLimited() bool { return configtable.Net.Watches(&w.cfg) }

// Round is one round of the goroutine that judges.
func (w *simWorld) Round() {
	w.ln.driver.round()
	w.watchClosed()
	w.judging = !w.ln.driver.leave()
}

// Poll takes the place of the driver's wait for work before the next tick.
func (w *simWorld) Poll() {
	if w.judging && !w.InRound && len(w.ln.wake) > 0 {
		<-w.ln.wake
		w.PlanRound(max(w.Now, min(w.RoundDue, w.Now+w.UpTo(time.Millisecond))))
	}
}

// newAddress returns a connection at a new address. Its shard is chosen by chance.
func (w *simWorld) newAddress() *simConn {
	for number := w.Rand.IntN(len(w.ln.shards)); ; {
		if c := new(simConn); w.ln.shard(c).Number == uint32(number+1) {
			return c
		}
	}
}

// Decided reports whether the connection has ended. The caller may hold the mutex of its shard.
func (l *simLife) Decided() bool {
	s := l.w.ln.shard(l.conn)
	id, ok := s.ids.Find(address(l.conn))
	return ok && s.Ends.Of(id) != nil
}

// isWatched reports whether the Listener knows the connection.
func (l *simLife) isWatched() bool { return l.w.ln.ID(l.conn) != "" }

// lifeOf returns the connection that the Listener means.
func (w *simWorld) lifeOf(c net.Conn) *simLife {
	own, _ := root(c)
	return own.(*simConn).simLife
}

// checkEmpty checks that the Listener has forgotten everything.
func (w *simWorld) checkEmpty() {
	for _, s := range w.ln.shards {
		left := 0
		for id := range s.Len() {
			if s.At(id).Used() {
				left++
			}
		}
		if left+s.ids.Len()+s.Ends.Len()+s.Schedule.Len()+len(s.calls) > 0 {
			w.Violate(nil, "the Listener is empty in the end", "%d connections, %d addresses, %d ends, %d entries, %d calls",
				left, s.ids.Len(), s.Ends.Len(), s.Schedule.Len(), len(s.calls))
		}
	}
}

var _ socket = (*simConn)(nil)
