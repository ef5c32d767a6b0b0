package result

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Add adds the counts of another process or machine.
func (c *Counts) Add(o *Counts) {
	for i := range o.Groups {
		j := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == o.Groups[i].Name })
		if j < 0 {
			c.Groups = append(c.Groups, Group{Name: o.Groups[i].Name, Behaviour: o.Groups[i].Behaviour})
			j = len(c.Groups) - 1
		}
		c.Groups[j].Add(&o.Groups[i])
	}
	for why, n := range o.Failures {
		if c.Failures == nil {
			c.Failures = Failures{}
		}
		c.Failures[why] += n
	}
	for phase, h := range o.OwnDelay {
		Of(&c.OwnDelay, phase).Add(h)
	}
	for _, note := range o.Notes {
		if !slices.Contains(c.Notes, note) {
			c.Notes = append(c.Notes, note)
		}
	}
}

// Add adds the counts of another part of the group.
func (g *Group) Add(o *Group) {
	addNumbers(g, o)
	g.Hostile = g.Hostile || o.Hostile
	g.Said = cmp.Or(g.Said, o.Said)
	g.EarliestBy = max(g.EarliestBy, o.EarliestBy)
	for phase, e := range o.Exchanges {
		addNumbers(Of(&g.Exchanges, phase), e)
	}
	g.Connect.Add(&o.Connect)
	g.Lateness.Add(&o.Lateness)
	g.Lifetime.Add(&o.Lifetime)
	for phase, l := range o.Latency {
		Of(&g.Latency, phase).Add(l)
	}
}

// addNumbers adds the counts and numbers of b to those of a, field by field, so that none can be
// forgotten. A duration is not a sum, and is left alone.
func addNumbers[T any](a, b *T) {
	sum, more := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range sum.NumField() {
		switch field := sum.Field(i); field.Kind() {
		case reflect.Uint64:
			field.SetUint(field.Uint() + more.Field(i).Uint())
		case reflect.Int:
			field.SetInt(field.Int() + more.Field(i).Int())
		case reflect.Float64:
			field.SetFloat(field.Float() + more.Field(i).Float())
		}
	}
}

// Of returns the value of a phase, which it adds if it is missing.
func Of[T any](phases *map[string]*T, phase string) *T {
	if *phases == nil {
		*phases = map[string]*T{}
	}
	if (*phases)[phase] == nil {
		(*phases)[phase] = new(T)
	}
	return (*phases)[phase]
}

// Merge adds results to the first one, which it returns. Several machines measured them at the same
// time with one verb, and with setups that differ only in the numbers of connections and processes,
// in targets and sources. Samples and costs stay those of the first result, because clocks differ.
func Merge(all []*Result) (*Result, error) {
	sum := all[0]
	for i, r := range all {
		if len(r.Machines) > 1 {
			return nil, errors.New("one of them is a merged result: name those that it was made of")
		}
		if err := sum.alike(r); err != nil {
			return nil, err
		}
		for _, other := range all[:i] {
			if r.Began.Equal(other.Began) && r.Command == other.Command && slices.Equal(r.Machines, other.Machines) {
				return nil, errors.New("the same result twice")
			}
		}
	}
	for _, r := range all[1:] {
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
	r.Machines = append(r.Machines, o.Machines...)
	r.Counts.Add(&o.Counts)
	addNumbers(&r.Setup, &o.Setup)
	r.Setup.Targets = append(r.Setup.Targets, o.Setup.Targets...)
	for _, g := range o.Setup.Groups {
		i := slices.IndexFunc(r.Setup.Groups, func(mine GroupSetup) bool { return mine.Name == g.Name })
		if i < 0 {
			r.Setup.Groups = append(r.Setup.Groups, g)
		} else {
			r.Setup.Groups[i].Connections += g.Connections
		}
	}
}

// perMachine are the flags that may differ between merged results.
var perMachine = []string{
	"connections", "living", "target", "servers", "clients", "pid", "source", "sources", "rate", "out", "html", "against", "begin-at", "expect",
}

// alike returns an error unless the results are of the same load.
func (r *Result) alike(o *Result) error {
	switch {
	case r.Verb != o.Verb:
		return fmt.Errorf("results of %s and of %s cannot be merged", r.Verb, o.Verb)
	case r.Setup.Bare != o.Setup.Bare:
		return errors.New("results of targets with and without a reaper cannot be merged")
	}
	for name, a := range r.Setup.Flags {
		if b := o.Setup.Flags[name]; a != b && !slices.Contains(perMachine, name) {
			return fmt.Errorf("results with a --%s of %s and of %s cannot be merged", name, a, b)
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
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int { return cmp.Or(cmp.Compare(f[b], f[a]), cmp.Compare(a, b)) })
}
