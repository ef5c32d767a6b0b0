package sim

import (
	"cmp"
	"time"
)

// A Loop is the knowledge of the oracle about an event loop. Without event loops there is one for
// all connections, which is never blocked.
type Loop struct {
	w       *World
	Running bool
	Began   time.Duration // start of the current iteration
	Away    Intervals     // times in which one call took long, or a task was refused
	Sheds   int           // connections that the current call has closed for the total of output
	Handles *Life         // the subject of the current call of the handler
	Set     *Settings     // by which it judges; those of the world if nil

	openThen int           // connections of the server at the start of the iteration
	heardAt  time.Duration // last read
	quietAt  time.Duration // last read that ended a quiet time
	blocks   Intervals     // of Away, counted from seen; tasks separate them
	stalls   Intervals     // times in which a handler was slow
	seen     time.Duration // end of the last iteration that called the front end
	apart    bool          // a task has run since the last block began
	Called   bool          // the current iteration has called a handler of the front end
	Ran      bool          // the current iteration has run a task of the front end
	shedAt   time.Duration // the last close of a connection for the total of output
}

func (w *World) NewLoop() *Loop {
	l := &Loop{w: w}
	w.Loops = append(w.Loops, l)
	return l
}

func (l *Loop) Begin() {
	l.Running, l.Began, l.openThen, l.Called, l.Ran = true, l.w.Now, l.w.Open, false, false
}

func (l *Loop) End() {
	l.Running = false
	if l.w.Now-l.Began > time.Millisecond {
		l.Away.Add(l.Began, l.w.Now)
		l.addBlock()
		l.apart = false
		l.w.Trace(nil, "a loop was busy since", l.Began)
	}
	l.apart = l.apart || l.Ran
	if l.Called || l.Ran {
		l.seen = l.w.Now
	}
}

// addBlock records the iteration as a block, which may begin when the server last saw the loop run.
func (l *Loop) addBlock() {
	block := Interval{min(l.Began, l.seen) - l.w.Set.Tick, l.w.Now}
	if n := len(l.blocks); n > 0 && l.apart {
		block.From = max(block.From, l.blocks[n-1].To+1)
	} else if n > 0 && block.From <= l.blocks[n-1].To {
		l.blocks[n-1].To = block.To
		return
	}
	l.blocks = append(l.blocks, block)
}

// Stall is a handler that takes long. By the settings in force then, it is an outage or not.
func (l *Loop) Stall(d time.Duration) {
	from, least := l.w.Now, max(l.w.least(l.w.Set), l.w.least(cmp.Or(l.Set, l.w.Set)))
	if l.w.Sleep(d); d > least+5*l.w.Set.Tick {
		l.stalls.Add(from, l.w.Now)
	}
}

// isQuiet reports whether output may be checked less often: no peer was heard between two checks.
func (l *Loop) isQuiet() bool { return l.w.Traits.Loops && l.w.Now-l.heardAt > l.w.checkEvery() }

// wasQuiet reports whether the loop may have been quiet since an instant.
func (l *Loop) wasQuiet(since time.Duration) bool {
	return l.w.Traits.Loops && (l.isQuiet() || l.quietAt >= since)
}

// noticing returns the interval between two checks of output that waits since the given instant.
func (l *Loop) noticing(limit, since time.Duration) time.Duration {
	if l.wasQuiet(since) {
		return limit
	}
	return limit / 4
}

// checkEvery returns the interval at which output is checked on a loop that is not quiet.
func (w *World) checkEvery() time.Duration {
	limit := w.Set.OutputLimit
	every := shortest(never, limit.SoftFor, w.Set.WriteStallTimeout) / 4
	if limit.Hard > 0 || limit.Total > 0 {
		every = min(every, time.Second)
	}
	return max(every, w.Set.Tick)
}
