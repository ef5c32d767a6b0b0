package result

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Add adds the counts of another part of the group.
func (g *Group) Add(o *Group) {
	g.Connections += o.Connections
	g.Hostile = g.Hostile || o.Hostile
	g.Opened += o.Opened
	g.OpenFailed += o.OpenFailed
	g.Open += o.Open
	g.Messages += o.Messages
	g.Answers += o.Answers
	g.Lost += o.Lost
	g.Said = cmp.Or(g.Said, o.Said)
	g.Starved += o.Starved
	g.Reaped += o.Reaped
	g.Early += o.Early
	g.EarliestBy = max(g.EarliestBy, o.EarliestBy)
	g.Kept += o.Kept
	g.Ended += o.Ended
	g.Vanished += o.Vanished
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
		Of(&g.Exchanges, phase).add(e)
	}
	g.Connect = Sum(g.Connect, o.Connect)
	g.Lateness = Sum(g.Lateness, o.Lateness)
	g.Lifetime = Sum(g.Lifetime, o.Lifetime)
	for phase, l := range o.Latency {
		if l == nil { // the file has another origin
			continue
		}
		Of(&g.Latency, phase).add(l)
	}
}

// Of returns the value of a phase, which it adds if it is missing.
func Of[T any](phases *map[string]*T, phase string) *T {
	if *phases == nil {
		*phases = map[string]*T{}
	}
	of := (*phases)[phase]
	if of == nil {
		of = new(T)
		(*phases)[phase] = of
	}
	return of
}

func (e *Exchange) add(o *Exchange) {
	e.Sent += o.Sent
	e.Answered += o.Answered
	e.Outstanding += o.Outstanding
	e.Arrived += o.Arrived
	e.Unanswered += o.Unanswered
}

// Sum returns the sum of two Histograms, either of which may be nil. It may change a, and never b.
func Sum(a, b *Histogram) *Histogram {
	if b == nil {
		return a
	}
	if a == nil {
		a = NewHistogram()
	}
	a.Add(b)
	return a
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

// Merge adds up results of one verb that several machines measured at the same time, with setups
// that differ only in the numbers of connections and processes, in targets and sources. Samples and
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
	sum.Setup.Rate, sum.Setup.Sources, sum.Setup.Groups = 0, 0, nil
	for i, r := range all {
		if len(r.Machines) > 1 {
			return nil, errors.New("one of them is a merged result: name those that it was made of")
		}
		if err := first.alike(r); err != nil {
			return nil, err
		}
		for _, other := range all[:i] {
			if r.Began.Equal(other.Began) && r.Command == other.Command && slices.Equal(r.Machines, other.Machines) {
				return nil, errors.New("the same result twice")
			}
		}
		sum.add(r)
	}
	slices.Sort(sum.Setup.Targets)
	sum.Setup.Targets = slices.Compact(sum.Setup.Targets)
	if len(all) > 1 {
		sum.Notes = append(sum.Notes, fmt.Sprintf("merged from %d results; charts over time and costs are those of the first", len(all)))
	}
	return sum, nil
}

// add adds a result of another machine.
func (r *Result) add(o *Result) {
	if o.Began.Before(r.Began) {
		r.Began = o.Began
	}
	r.Took = max(r.Took, o.Took)
	r.Interrupted = r.Interrupted || o.Interrupted
	r.Errors = append(r.Errors, o.Errors...)
	r.Faults = append(r.Faults, o.Faults...)
	for _, note := range o.Notes {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
	r.Machines = append(r.Machines, o.Machines...)
	r.Setup.add(&o.Setup)
	r.Groups = AddGroups(r.Groups, o.Groups)
	r.Failures = r.Failures.Add(o.Failures)
	r.OwnDelay = AddDelays(r.OwnDelay, o.OwnDelay)
}

// AddDelays adds Histograms by phase to delays, and returns delays.
func AddDelays(delays, others map[string]*Histogram) map[string]*Histogram {
	for phase, h := range others {
		if delays == nil {
			delays = map[string]*Histogram{}
		}
		delays[phase] = Sum(delays[phase], h)
	}
	return delays
}

// add adds the counts of another setup.
func (s *Setup) add(o *Setup) {
	s.Connections += o.Connections
	s.Clients += o.Clients
	s.Servers += o.Servers
	s.Sources += o.Sources
	s.Rate += o.Rate
	s.Targets = append(s.Targets, o.Targets...)
	for _, g := range o.Groups {
		i := slices.IndexFunc(s.Groups, func(mine GroupSetup) bool { return mine.Name == g.Name })
		if i < 0 {
			s.Groups = append(s.Groups, g)
			continue
		}
		s.Groups[i].Connections += g.Connections
	}
}

// perMachine are the flags that may differ between merged results.
var perMachine = []string{
	"connections", "living", "target", "servers", "clients", "pid", "source", "sources", "rate", "out", "html", "against", "begin-at", "expect",
}

// alike returns an error unless the results are of the same load.
func (r *Result) alike(o *Result) error {
	differ := func(what string, a, b any) error {
		return fmt.Errorf("results with a %s of %v and of %v cannot be merged", what, a, b)
	}
	switch {
	case r.Verb != o.Verb:
		return fmt.Errorf("results of %s and of %s cannot be merged", r.Verb, o.Verb)
	case r.Setup.Timeout != o.Setup.Timeout:
		return differ("timeout", r.Setup.Timeout, o.Setup.Timeout)
	case r.Setup.Bare != o.Setup.Bare:
		return errors.New("results of targets with and without a reaper cannot be merged")
	case r.Setup.Ramp != o.Setup.Ramp:
		return differ("ramp", r.Setup.Ramp, o.Setup.Ramp)
	case r.Setup.Patience != o.Setup.Patience:
		return differ("patience", r.Setup.Patience, o.Setup.Patience)
	}
	for name := range maps.Keys(r.Setup.Flags) {
		if a, b := r.Setup.Flags[name], o.Setup.Flags[name]; a != b && !slices.Contains(perMachine, name) {
			return differ("--"+name, a, b)
		}
	}
	for _, g := range r.Setup.Groups {
		for _, other := range o.Setup.Groups {
			other.Connections = g.Connections
			if other.Name == g.Name && other != g {
				return fmt.Errorf("results with unlike groups %s cannot be merged", g.Name)
			}
		}
	}
	return nil
}

// Reasons returns the reasons of failures, the most frequent first.
func (f Failures) Reasons() []string {
	reasons := slices.Sorted(maps.Keys(f))
	slices.SortStableFunc(reasons, func(a, b string) int { return cmp.Compare(f[b], f[a]) })
	return reasons
}
