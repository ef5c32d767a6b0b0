package sim

import (
	"slices"
	"time"
)

// An Interval is the time between two instants.
type Interval struct{ From, To time.Duration }

func (i Interval) length() time.Duration          { return i.To - i.From }
func (i Interval) contains(at time.Duration) bool { return i.From <= at && at < i.To }

// Intervals are intervals in the order of their ends.
type Intervals []Interval

// Add adds an interval that ends now. It swallows earlier intervals that it overlaps.
func (all *Intervals) Add(from, to time.Duration) {
	list := *all
	for len(list) > 0 && list[len(list)-1].To >= from {
		from = min(from, list[len(list)-1].From)
		to = max(to, list[len(list)-1].To)
		list = list[:len(list)-1]
	}
	*all = append(list, Interval{from, to})
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

// since returns the length of the intervals that end after an instant.
func (all Intervals) since(at time.Duration) (sum time.Duration) {
	for i := len(all) - 1; i >= 0 && all[i].To > at; i-- {
		sum += all[i].length()
	}
	return sum
}

// merged joins intervals that are near each other, and drops short ones.
func (all Intervals) merged(near, least time.Duration) (list Intervals) {
	for _, i := range all {
		if n := len(list); n > 0 && i.From-list[n-1].To <= near {
			list[n-1].To = max(list[n-1].To, i.To)
			continue
		}
		list = append(list, i)
	}
	return slices.DeleteFunc(list, func(i Interval) bool { return i.length() < least })
}

// sort sorts the intervals by their beginnings.
func (all Intervals) sort() {
	slices.SortStableFunc(all, func(a, b Interval) int { return int(a.From - b.From) })
}

// never is an instant that is never in the time of the simulation.
const never = time.Duration(1<<63 - 1)

// An event is a function that runs at an instant of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // orders events of the same instant by when they were planned
	do  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// A queue is a heap of events. It is twice as fast as container/heap.
type queue []event

func (q *queue) push(e event) {
	all := append(*q, e)
	for i := len(all) - 1; i > 0 && all[i].before(&all[(i-1)/2]); i = (i - 1) / 2 {
		all[i], all[(i-1)/2] = all[(i-1)/2], all[i]
	}
	*q = all
}

// next returns the instant of the first event, or never.
func (q queue) next() time.Duration {
	if len(q) == 0 {
		return never
	}
	return q[0].at
}

func (q *queue) pop() event {
	all, last := *q, len(*q)-1
	first := all[0]
	all[0], all[last] = all[last], event{}
	*q = all[:last]
	for i, least := 0, 0; ; i = least {
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if all[child].before(&all[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		all[i], all[least] = all[least], all[i]
	}
}
