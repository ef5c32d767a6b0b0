package page

import (
	"maps"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A table has rows that begin with a heading.
type table struct {
	Title   string
	Numbers bool // cells are numbers, aligned right
	Head    []string
	Rows    [][]cell
}

// A cell is a text with an optional explanation. An outcome gives it a colour and a sign.
type cell struct {
	Text, Hint string
	Outcome    result.Outcome
}

func (t *table) add(texts ...string) {
	cells := make([]cell, len(texts))
	for i, s := range texts {
		cells[i].Text = s
	}
	t.Rows = append(t.Rows, cells)
}

func (v view) Wanted() table {
	t := table{Title: "Expectations", Head: []string{"Name", "Wanted", "Got", "Holds"}}
	for _, e := range v.Expectations {
		holds := cell{Text: "yes", Outcome: result.Passed}
		if !e.OK {
			holds = cell{Text: "no", Outcome: result.Failed}
		}
		t.Rows = append(t.Rows, []cell{{Text: e.Name}, {Text: e.Want}, {Text: e.Got}, holds})
	}
	return t
}

// Counters returns a table with a column per group and one for their sum: there are more counters
// than groups.
func (v view) Counters() table {
	t := table{Title: "Groups of connections", Numbers: true, Head: []string{"Counter"}}
	all := slices.Clone(v.Groups)
	if len(all) > 1 {
		all = append(all, v.Total())
	}
	behaviours := []cell{{Text: "behaviour"}}
	for _, g := range all {
		t.Head = append(t.Head, g.Name)
		behaviours = append(behaviours, cell{Text: g.Behaviour})
	}
	if len(all) == 0 {
		return t
	}
	t.Rows = append(t.Rows, behaviours)
	for _, c := range result.Counters {
		cells, counted := []cell{{Text: c.Name, Hint: c.Hint}}, c.Main
		for i := range all {
			n := c.Of(&all[i])
			cells = append(cells, cell{Text: format.Count(n), Outcome: outcomeOf(c, n)})
			counted = counted || n > 0
		}
		if counted {
			t.Rows = append(t.Rows, cells)
		}
	}
	return t
}

func (v view) Durations() table {
	t := table{Title: "Durations", Numbers: true, Head: []string{"Duration", "Count", "p50", "p90", "p99", "p99.9", "Max"}}
	for _, of := range v.Times() {
		row := []string{of.Name, format.Count(of.Count())}
		for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
			row = append(row, of.Text(q))
		}
		t.add(row...)
	}
	return t
}

// Details returns the tables of less weight.
func (v view) Details() []table {
	return []table{v.failures(), v.costs(), v.setup(), v.machines()}
}

func (v view) failures() table {
	t := table{Title: "Why connections could not be opened", Numbers: true}
	for _, why := range v.Failures.Reasons() {
		t.add(why, format.Count(v.Failures[why]))
	}
	return t
}

func (v view) costs() table {
	c, t := v.Costs, table{Title: "Cost per connection", Numbers: true}
	if c == nil {
		return t
	}
	ends := "both ends"
	if !c.BothEnds {
		ends = "this end"
	}
	t.add("Connections held", format.Count(c.Connections))
	t.add("Server memory", format.Bytes(c.ServerBytes))
	if c.BareBytes > 0 {
		t.add("of which gnet", format.Bytes(c.BareBytes))
		t.add("of which the reaper", format.Bytes(c.ServerBytes-c.BareBytes))
	}
	t.add("Kernel memory of the whole machine, "+ends, format.Bytes(c.KernelBytes))
	t.add("Client memory", format.Bytes(c.ClientBytes))
	t.add("Server CPU while held", format.Duration(c.ServerCPU))
	t.add("Client CPU while held", format.Duration(c.ClientCPU))
	return t
}

func (v view) machines() table {
	t := table{Title: "Machines", Head: []string{"Name", "CPUs", "CPU", "Memory", "Kernel", "Go", "Descriptors"}}
	for _, m := range v.Machines {
		t.add(m.Name, format.Count(m.CPUs), m.CPU, format.Bytes(float64(m.Memory)), m.Kernel, m.Go, format.Count(m.Descriptors))
	}
	return t
}

func (v view) setup() table {
	s, t := &v.Setup, table{Title: "Setup"}
	t.add("Targets", strings.Join(result.Some(s.Targets, 12), ", "))
	t.add("Processes", format.Plural(s.Clients, "client", "clients")+", "+format.Plural(s.Servers, "launched server", "launched servers"))
	for _, name := range slices.Sorted(maps.Keys(s.Flags)) {
		if value := s.Flags[name]; !slices.Contains([]string{"", "[]", "0", "0s", "false"}, value) {
			t.add("--"+name, value)
		}
	}
	return t
}
