package result

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Add adds the counts of another part of the group.
func (g *Group) Add(o *Group) {
	g.Connections += o.Connections
	g.Opened += o.Opened
	g.OpenFailed += o.OpenFailed
	g.Open += o.Open
	g.Messages += o.Messages
	g.Answers += o.Answers
	g.Lost += o.Lost
	g.Starved += o.Starved
	g.Reaped += o.Reaped
	g.Early += o.Early
	g.EarliestBy = max(g.EarliestBy, o.EarliestBy)
	g.Kept += o.Kept
	g.Ended += o.Ended
	g.Reset += o.Reset
	g.Told += o.Told
	g.Garbled += o.Garbled
	g.Unanswered += o.Unanswered
	g.Doubled += o.Doubled
	g.Skipped += o.Skipped
	g.Swapped += o.Swapped
	for phase, e := range o.Exchanges {
		if e == nil {
			continue
		}
		if g.Exchanges == nil {
			g.Exchanges = map[string]*Exchange{}
		}
		mine := g.Exchanges[phase]
		if mine == nil {
			mine = &Exchange{}
			g.Exchanges[phase] = mine
		}
		mine.add(e)
	}
	g.Connect = sum(g.Connect, o.Connect)
	g.Lateness = sum(g.Lateness, o.Lateness)
	g.Lifetime = sum(g.Lifetime, o.Lifetime)
	for phase, l := range o.Latency {
		if l == nil { // the file has another origin
			continue
		}
		if g.Latency == nil {
			g.Latency = map[string]*Latency{}
		}
		mine := g.Latency[phase]
		if mine == nil {
			mine = &Latency{}
			g.Latency[phase] = mine
		}
		mine.Corrected = sum(mine.Corrected, l.Corrected)
		mine.Raw = sum(mine.Raw, l.Raw)
	}
}

func (e *Exchange) add(o *Exchange) {
	e.Sent += o.Sent
	e.Answered += o.Answered
	e.Outstanding += o.Outstanding
	e.Unanswered += o.Unanswered
}

// sum returns the sum of two Histograms, either of which may be nil. It may change a, and never b.
func sum(a, b *Histogram) *Histogram {
	if b == nil {
		return a
	}
	if a == nil {
		a = NewHistogram()
	}
	a.Add(b)
	return a
}

// AddHistograms adds the histograms with the same name and returns sum, which may be nil.
func AddHistograms(all, others map[string]*Histogram) map[string]*Histogram {
	if all == nil && len(others) > 0 {
		all = map[string]*Histogram{}
	}
	for name, h := range others {
		all[name] = sum(all[name], h)
	}
	return all
}

// AddGroups adds the counts of others to the groups with the same name, and returns groups. It
// appends missing groups.
func AddGroups(groups, others []Group) []Group {
	for i := range others {
		j := slices.IndexFunc(groups, func(g Group) bool { return g.Name == others[i].Name })
		if j < 0 {
			groups = append(groups, Group{Name: others[i].Name, Behaviour: others[i].Behaviour})
			j = len(groups) - 1
		}
		groups[j].Add(&others[i])
	}
	return groups
}

// Add adds the counts of o and returns f.
func (f Failures) Add(o Failures) Failures {
	if f == nil && len(o) > 0 {
		f = Failures{}
	}
	for why, n := range o {
		f[why] += n
	}
	return f
}

// Merge adds up results of one verb that several machines measured at the same time. Samples and
// costs are those of the first result, because clocks differ. Expectations are not merged.
func Merge(all []*Result) (*Result, error) {
	if len(all) == 0 {
		return nil, errors.New("no results to merge")
	}
	first := all[0]
	sum := &Result{
		Schema: Schema, Verb: first.Verb, Command: first.Command, Began: first.Began, Phases: first.Phases, Setup: first.Setup,
		Samples: first.Samples, Costs: first.Costs,
	}
	sum.Setup.Connections, sum.Setup.Clients, sum.Setup.Servers, sum.Setup.Targets = 0, 0, 0, nil
	for i, r := range all {
		if r.Verb != first.Verb {
			return nil, fmt.Errorf("results of %s and of %s cannot be merged", first.Verb, r.Verb)
		}
		if r.Setup.Timeout != first.Setup.Timeout || r.Setup.Bare != first.Setup.Bare {
			return nil, fmt.Errorf("results of targets with timeouts of %v and %v, or with and without a reaper, cannot be merged",
				first.Setup.Timeout, r.Setup.Timeout)
		}
		for _, other := range all[:i] {
			if r.Began.Equal(other.Began) && r.Command == other.Command && slices.Equal(r.Machines, other.Machines) {
				return nil, errors.New("the same result twice")
			}
		}
		if r.Began.Before(sum.Began) {
			sum.Began = r.Began
		}
		sum.Took = max(sum.Took, r.Took)
		sum.Interrupted = sum.Interrupted || r.Interrupted
		sum.Errors = append(sum.Errors, r.Errors...)
		sum.Machines = append(sum.Machines, r.Machines...)
		sum.Setup.Connections += r.Setup.Connections
		sum.Setup.Clients += r.Setup.Clients
		sum.Setup.Servers += r.Setup.Servers
		sum.Setup.Targets = append(sum.Setup.Targets, r.Setup.Targets...)
		sum.Groups = AddGroups(sum.Groups, r.Groups)
		sum.Failures = sum.Failures.Add(r.Failures)
	}
	slices.Sort(sum.Setup.Targets)
	sum.Setup.Targets = slices.Compact(sum.Setup.Targets)
	if len(all) > 1 {
		sum.Notes = append(sum.Notes, fmt.Sprintf("merged from %d results; charts over time and costs are those of the first", len(all)))
	}
	return sum, nil
}

// Reasons returns the reasons of failures, the most frequent first.
func (f Failures) Reasons() []string {
	reasons := slices.Sorted(maps.Keys(f))
	slices.SortStableFunc(reasons, func(a, b string) int {
		switch {
		case f[a] > f[b]:
			return -1
		case f[a] < f[b]:
			return 1
		}
		return 0
	})
	return reasons
}
