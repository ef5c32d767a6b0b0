package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/reap"
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

// The oracle of OutputLimit.Total. Output is seen when OnOpen or OnTraffic of its connection
// returns. The server learns at its next check that less of it waits.

// Returned is called when the handler has returned without a close. One call of the server closes
// at most batch connections for the total.
func (l *Life) Returned(batch int) {
	total := l.w.Set.OutputLimit.Total
	if total == 0 || !l.IsOpen {
		return
	}
	l.now.seen = When(!l.now.exempt, l.Conn.OutboundBuffered())
	l.w.watchOutput()
	all := l.w.seenOutput()
	l.w.shedsMore = all > total+total/8 && (l.w.shedsMore || l.Loop.Sheds == batch) // in tasks
	if all <= total+total/8 || l.w.shedsMore || l.w.observes {
		return
	}
	own := func(other *Life) bool { return other.Loop == l.Loop && other.counted() > 0 }
	if slices.ContainsFunc(l.w.All, own) {
		l.w.Violate(l, fmt.Sprintf("output of all connections is at most %d after OnTraffic, or all of this loop are closed",
			total+total/8), "it is %d", all)
	}
}

// counted returns the seen output if the limit applies to the connection.
func (l *Life) counted() int {
	return When(l.IsOpen && !l.now.exempt && !l.now.ended && l.Loop.Handles != l, l.now.seen)
}

func (w *World) seenOutput() (sum int) {
	for _, l := range w.All {
		sum += l.counted()
	}
	return sum
}

// watchOutput checks that the total is not exceeded for long.
func (w *World) watchOutput() {
	total := w.Set.OutputLimit.Total
	if total == 0 || w.Failed() || w.observes {
		return
	}
	if w.seenOutput() <= total {
		w.overSince = 0
		return
	}
	w.overSince = cmp.Or(w.overSince, w.Now)
	away := time.Duration(0)
	for _, l := range w.All {
		if l.counted() > 0 {
			away = max(away, l.absence(w.overSince))
		}
	}
	if due := w.overSince + w.Slack() + away; w.Now > due {
		largest := slices.MaxFunc(w.All, func(a, b *Life) int { return cmp.Compare(a.counted(), b.counted()) })
		w.Violate(largest, fmt.Sprintf("output of all connections is at most %d by %v", total, due),
			"it is %d at %v", w.seenOutput(), w.Now)
	}
}

// mayCount returns the most output that the server may have counted for a connection at an instant.
func (l *Life) mayCount(at time.Duration) (most int) {
	if !l.IsOpen && l.closedAt < at || l.now.exempt {
		return 0
	}
	from := l.lastCheck()
	for _, o := range slices.Backward(l.outputs) {
		most = max(most, o.n)
		if o.at < from {
			break
		}
	}
	return most
}

// lastCheck returns an instant after which the server has certainly checked the output.
func (l *Life) lastCheck() time.Duration {
	for from := l.w.Now; ; {
		every := l.w.checkEvery()
		if l.Loop.wasQuiet(from) {
			every = max(every, 8*time.Second)
		}
		before := l.w.Now - every - l.w.Slack() - l.absence(from)
		if before >= from {
			return from
		}
		from = before
	}
}

// earlyTotal is early for OutputLimit.Total.
func (l *Life) earlyTotal(e *reap.Error) string {
	w, t, total := l.w, &l.asked, l.w.Set.OutputLimit.Total
	w.N["closed for Total"]++
	if total == 0 || e.LimitBytes != total || e.Bytes != t.outbound || t.outbound == 0 {
		return fmt.Sprintf("over limit: the report is about %d bytes of all connections, and %d of this one", total, t.outbound)
	}
	most := t.outbound
	for _, other := range w.All {
		if other != l {
			most += other.mayCount(l.answeredAt)
		}
	}
	least := total
	if l.Loop.shedAt >= l.Loop.Began { // it goes on until a part is free
		least -= total / 16
	}
	l.Loop.shedAt = w.Now
	l.Loop.Sheds++
	if most <= least {
		return fmt.Sprintf("over limit: all connections together have at most %d bytes, limit %d", most, total)
	}
	for _, other := range w.All { // spared ones count later
		mine := other.Loop == l.Loop || most <= total+total/8 // otherwise each loop closes its own
		if other != l && mine && other.counted() > t.outbound && !w.observes {
			return fmt.Sprintf("over limit: connection %d has %d bytes, more than %d", other.ID, other.counted(), t.outbound)
		}
	}
	return ""
}
