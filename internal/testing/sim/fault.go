package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/internal/mono"
)

// Stop stops the process for a time. During a pause, packets are lost as well.
func (w *World) Stop(d time.Duration, paused bool) {
	if w.inStop {
		return
	}
	w.inStop = true
	w.N["stops"]++
	w.Trace(nil, "stopped for", d, "paused:", paused)
	if paused {
		w.N["pauses"]++
		w.netDown = Interval{w.Now, max(w.Now+d, w.netDown.To)}
	}
	w.Away.Add(w.Now, w.Now+d)
	if !w.Traits.Loops {
		w.addCertain(w.Now, w.Now+d)
	}
	w.Pass(d)
	w.inStop = false
	w.front.Stopped()
}

func (w *World) stopLength() time.Duration {
	return w.UpTo([]time.Duration{5 * w.Set.Tick, w.Longest, 3 * w.Longest}[w.Rand.IntN(3)])
}

// Slow makes a call by the driver slow, if one is under way.
func (w *World) Slow(d time.Duration) {
	from, before := w.Now, w.slow
	if w.InRound {
		w.slow = cmp.Or(before, from)
	}
	w.Sleep(d)
	if w.slow = before; w.InRound {
		w.Away.Add(from, w.Now)
	}
}

// isLost reports whether the network drops a packet of a connection now.
func (w *World) isLost(l *Life) bool {
	return w.Family != Unix && (w.isDown(l) || w.loss > 0 && w.Rand.Float64() < w.loss)
}

// isDown reports whether the network of a connection is down.
func (w *World) isDown(l *Life) bool { return l.Network == 0 && w.netDown.contains(w.Now) }

func (w *World) acksAreLost() bool { return w.Family != Unix && w.acksDown.contains(w.Now) }

// least is the shortest time that is certainly an outage by the given settings.
func (w *World) least(s *Settings) time.Duration {
	tenth := min(max(shortest(w.Longest, s.deadlines()...)/10, 20*time.Millisecond), 200*time.Millisecond)
	return max(2*s.Tick, tenth) + s.Tick
}

// addCertain adds an outage that must be recognised, if it is long enough by the present settings.
func (w *World) addCertain(from, to time.Duration) {
	if to-from >= w.least(w.Set) {
		w.certain.Add(from, to)
	}
}

// Grace returns the bound of the grace after an outage, negative if there is none.
func (w *World) Grace() time.Duration { return cmp.Or(w.Set.OutageGrace, 2*time.Minute) }

// Slack is the lateness that a verdict may have if the process was never away: two ticks, the steps
// of the kernel, and the time to close all connections.
func (w *World) Slack() time.Duration {
	return w.rounding() + w.Traits.Late + time.Duration(len(w.All))*w.Traits.LatePer
}

// isLate reports whether a round of the driver is overdue.
func (w *World) isLate() bool { return w.plannedN > 0 && !w.InRound && w.Now > w.RoundDue }

// away returns the times so far in which the driver did not run.
func (w *World) away() Intervals {
	if w.isLate() {
		return append(slices.Clone(w.Away), Interval{w.RoundDue, w.Now})
	}
	return slices.Clone(w.Away)
}

// watchHold records and checks holds of verdicts, and silences that the server takes for outages.
func (w *World) watchHold() {
	state := w.Monitor.State()
	groups := w.Silences()
	if !state.Held() && w.outages == w.Monitor.Outages && len(groups) == 0 {
		return
	}
	w.outages = w.Monitor.Outages
	for _, state := range append(groups, state) {
		if state.Held() {
			w.holds = append(w.holds, Interval{time.Duration(state.Holds(mono.Time(w.Now))[0]), w.Now})
		}
		for _, o := range state.Silent {
			w.holds = append(w.holds, Interval{time.Duration(o.From), time.Duration(o.To)})
		}
	}
	w.holds = w.holds.merged(0, 0)
	if len(w.holds) > 0 && (len(w.All) < 16 || w.Grace() < 0) {
		w.Violate(nil, "no hold with fewer than 16 connections or without a grace", "verdicts are held")
	}
}

// heardKept is the number of instants at which a peer was heard that a World remembers.
const heardKept = 2000

// noteHeard is called when a byte of a peer arrives, is read or found, or a connection is opened.
func (w *World) noteHeard() {
	if w.heard = append(w.heard, w.Now); len(w.heard) > 2*heardKept {
		w.heard = append(w.heard[:0], w.heard[heardKept:]...)
	}
}

// wasOut returns the outages that certainly counted at a verdict, about a connection or nil.
func (w *World) wasOut(l *Life, judged time.Duration) (all Intervals) {
	for _, o := range w.certain {
		if o.From < judged {
			all = append(all, Interval{o.From, min(o.To, judged)})
		}
	}
	if w.isLate() && judged > w.RoundDue {
		all.Add(w.RoundDue, judged)
	}
	for _, o := range w.netAway {
		if o.From < judged && (l == nil || l.Network == 0) {
			all = append(all, Interval{o.From, min(o.To, judged+w.Set.Tick)})
		}
	}
	return all.merged(0, w.least(w.Set))
}

// StoppedSince returns the time of the certain outages since an instant.
func (w *World) StoppedSince(since time.Duration) time.Duration {
	sum, _ := w.wasOut(nil, w.Now).Within(since, w.Now)
	return sum
}

// MayBeOut returns the outages that may count.
func (w *World) MayBeOut() Intervals {
	all := append(w.away(), w.holds...)
	if w.slow != 0 {
		all = append(all, Interval{w.slow, w.Now})
	}
	return all.merged(3*w.Set.Tick, time.Millisecond)
}

// An Interval is the time between two instants.
type Interval struct{ From, To time.Duration }

func (i Interval) length() time.Duration          { return i.To - i.From }
func (i Interval) contains(at time.Duration) bool { return i.From <= at && at < i.To }

// Intervals are intervals in the order of their ends.
type Intervals []Interval

// Add adds an interval that ends now or later. It is joined with those that it touches.
func (all *Intervals) Add(from, to time.Duration) {
	*all = append(*all, Interval{from, to}).merged(0, 0)
}

// Within returns the length of the parts of the intervals within a time, and their number.
func (all Intervals) Within(from, to time.Duration) (sum time.Duration, n int) {
	for i := len(all) - 1; i >= 0 && all[i].To > from; i-- {
		if part := min(all[i].To, to) - max(all[i].From, from); part > 0 {
			sum += part
			n++
		}
	}
	return sum, n
}

// end returns the end of the interval that contains an instant, or the instant. The answer to a
// question at that instant is as old as the end of the interval.
func (all Intervals) end(at time.Duration) time.Duration {
	if i := slices.IndexFunc(all, func(i Interval) bool { return i.contains(at) }); i >= 0 {
		return all[i].To
	}
	return at
}

// merged sorts intervals by their beginnings, joins those near each other, and drops short ones.
func (all Intervals) merged(near, least time.Duration) (list Intervals) {
	slices.SortStableFunc(all, func(a, b Interval) int { return cmp.Compare(a.From, b.From) })
	for _, i := range all {
		if n := len(list); n > 0 && i.From-list[n-1].To <= near {
			list[n-1].To = max(list[n-1].To, i.To)
			continue
		}
		list = append(list, i)
	}
	return slices.DeleteFunc(list, func(i Interval) bool { return i.length() < least })
}
