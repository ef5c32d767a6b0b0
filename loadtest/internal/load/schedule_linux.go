package load

import (
	"container/heap"
	"math"
)

// A schedule is a heap of all connections, the one that is due first at the top.
type schedule []*conn

// never is the due time of a connection without a next action.
const never = math.MaxInt64

// set sets the time of the next action of a connection, and cancels an earlier one.
func (s *schedule) set(c *conn, at int64) {
	c.due = at
	heap.Fix(s, int(c.place))
}

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due < s[j].due }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = int32(i), int32(j)
}

// Push and Pop complete heap.Interface. All connections are in the schedule from the start.
func (schedule) Push(any) {}
func (schedule) Pop() any { return nil }
