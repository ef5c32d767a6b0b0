package sim

import (
	"cmp"
	"slices"
	"time"
)

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

// never is an instant that is never in the time of the simulation.
const never = time.Duration(1<<63 - 1)

// An event is a function that runs at an instant of virtual time.
type event struct {
	at time.Duration
	do func()
}

// A queue has the events in the reverse order. Most new events are soon, and move few others. That
// is twice as fast as container/heap.
type queue []event

// push adds an event, which runs after the events of the same instant.
func (q *queue) push(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(*q, at, func(e event, at time.Duration) int { return cmp.Compare(at, e.at) })
	*q = slices.Insert(*q, i, event{at, do})
}

// next returns the instant of the first event, or never.
func (q queue) next() time.Duration {
	if len(q) == 0 {
		return never
	}
	return q[len(q)-1].at
}

// run takes the first event, and runs it.
func (q *queue) run() {
	first := (*q)[len(*q)-1]
	*q = slices.Delete(*q, len(*q)-1, len(*q))
	first.do()
}
