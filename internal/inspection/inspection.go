// Package inspection has what the Inspect of packages idle and idlenet share.
package inspection

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/idlewheel/idlewheel/internal/connstate"
	"github.com/idlewheel/idlewheel/internal/mono"
	"github.com/idlewheel/idlewheel/internal/topn"
	"github.com/idlewheel/idlewheel/internal/verdict"
	"github.com/idlewheel/idlewheel/reap"
)

// The orders of a list of connections.
const (
	ByIdle   = "idle"
	ByAge    = "age"
	ByOutput = "output"
)

// orders are the values of Query.By, and what each compares: the larger, the sooner it is listed.
var orders = map[string]func(i *reap.ConnInfo) int64{
	ByIdle:   func(i *reap.ConnInfo) int64 { return int64(i.ReadIdle) },
	ByAge:    func(i *reap.ConnInfo) int64 { return int64(i.Age) },
	ByOutput: func(i *reap.ConnInfo) int64 { return int64(i.Output) },
}

// An Inspector collects what an Inspect finds. Not safe for concurrent use.
type Inspector struct {
	Query reap.Query
	Now   mono.Time
	First *topn.List[reap.ConnInfo]
	Found reap.Inspection
}

// New returns an Inspector, or an error that joins all that is wrong with a Query.
func New(q reap.Query, now mono.Time) (*Inspector, error) {
	q.By = cmp.Or(q.By, ByIdle)
	if err := check(&q); err != nil {
		return nil, err
	}
	key := orders[q.By]
	i := &Inspector{Query: q, Now: now}
	i.First = topn.New(q.Limit, func(a, b reap.ConnInfo) int { return cmp.Compare(key(&b), key(&a)) })
	if q.States {
		i.Found.States = NewStates()
	}
	return i, nil
}

// Result returns what was found.
func (i *Inspector) Result() reap.Inspection {
	i.Found.Connections = i.First.Sorted()
	return i.Found
}

// check returns an error that joins all that is wrong with a Query.
func check(q *reap.Query) error {
	var errs []error
	if orders[q.By] == nil {
		errs = append(errs, fmt.Errorf("idle: Query.By is %q: set %s, %s or %s", q.By, ByIdle, ByAge, ByOutput))
	}
	if q.Limit < 0 {
		errs = append(errs, fmt.Errorf("idle: Query.Limit is %d: set a positive number, or 0 for no list", q.Limit))
	}
	if q.Sectors < 0 {
		errs = append(errs, fmt.Errorf("idle: Query.Sectors is %d: set a positive number, or 0 for no rings", q.Sectors))
	}
	return errors.Join(errs...)
}

// The states of a connection, in their order: if several apply, it is the first.
const (
	StateExempt    = "exempt"
	StateObserved  = "observed"
	StateLeaving   = "leaving"
	StateHeld      = "held"
	StateStalled   = "stalled"
	StateHandshake = "handshake"
	StateOpen      = "open"
)

// NewStates returns the number 0 for each state.
func NewStates() map[string]int {
	return map[string]int{
		StateExempt: 0, StateObserved: 0, StateLeaving: 0, StateHeld: 0, StateStalled: 0, StateHandshake: 0, StateOpen: 0,
	}
}

// StateOf returns the state of a connection.
func StateOf(s *connstate.State, f *verdict.Facts, lim *verdict.Limits) string {
	switch {
	case s.Exempt():
		return StateExempt
	case s.Observed():
		return StateObserved
	case f.Leaving:
		return StateLeaving
	case f.Held:
		return StateHeld
	case f.StalledSince != 0 && lim.PollOutput() > 0:
		return StateStalled
	case !f.Ready && lim.Handshake > 0:
		return StateHandshake
	}
	return StateOpen
}

// Info returns what is known of a connection at an instant, without a question to the kernel.
func Info(f *verdict.Facts, now mono.Time) reap.ConnInfo {
	return reap.ConnInfo{
		Age: max(now.Sub(f.Opened.To), 0), ReadIdle: max(now.Sub(f.Heard.To), 0),
		WriteIdle: max(now.Sub(f.Wrote.To), 0), Missed: f.Missed,
	}
}

// AddEvidence adds the answer of the kernel.
func AddEvidence(i *reap.ConnInfo, ev *verdict.Evidence) {
	i.Output += max(ev.Queued, 0)
	i.Received, i.Sent = ev.Received, ev.Acked
	if ev.Dated {
		i.ReadIdle = min(i.ReadIdle, ev.Silent)
		i.Age = max(i.Age, i.ReadIdle) // it is kept in whole ticks
		i.WriteIdle = ev.Quiet
	}
}

// NewConnID returns the ID of a connection: the number of its group, its number in the group, and
// the instant at which it was opened. Two connections that were opened in the same tick have
// different numbers.
func NewConnID(group, number, opened uint32) reap.ConnID {
	return reap.ConnID(fmt.Sprintf("%d-%d-%d", group, number, opened))
}

// ParseConnID returns the numbers in a ConnID.
func ParseConnID(id reap.ConnID) (group, number, opened uint32, err error) {
	var n [3]uint32
	parts := strings.Split(string(id), "-")
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 32)
		if err != nil || len(parts) != len(n) {
			return 0, 0, 0, fmt.Errorf("%w: %.60q", reap.ErrBadConnID, string(id))
		}
		n[i] = uint32(number)
	}
	return n[0], n[1], n[2], nil
}
