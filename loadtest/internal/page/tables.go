package page

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A table has rows that begin with a heading.
type table struct {
	Title   string
	Numbers bool // cells are numbers, aligned right
	Head    []string
	Rows    [][]cell
}

// A cell is a text with an optional explanation. Its class is a grade, or "text" if it is long.
type cell struct{ Text, Hint, Class string }

func (t *table) add(texts ...string) {
	cells := make([]cell, len(texts))
	for i, s := range texts {
		cells[i].Text = s
	}
	t.Rows = append(t.Rows, cells)
}

func expectations(r *result.Result) table {
	t := table{Title: "Expectations", Head: []string{"Name", "Wanted", "Got", "Holds"}}
	for _, e := range r.Expectations {
		t.add(e.Name, e.Want, e.Got)
		verdict := cell{Text: "yes", Class: good}
		if !e.OK {
			verdict = cell{Text: "no", Class: bad}
		}
		last := len(t.Rows) - 1
		t.Rows[last] = append(t.Rows[last], verdict)
	}
	return t
}

// counters are the counts of a group.
var counters = []struct {
	name, hint, grade string
	of                func(*result.Group) uint64
}{
	{"Requested", "", "", func(g *result.Group) uint64 { return uint64(max(g.Connections, 0)) }},
	{"Opened", "", "", func(g *result.Group) uint64 { return g.Opened }},
	{"Failed", "could not be opened", warn, func(g *result.Group) uint64 { return g.OpenFailed }},
	{"Open", "at the end", "", func(g *result.Group) uint64 { return g.Open }},
	{"Messages", "sent", "", func(g *result.Group) uint64 { return g.Messages }},
	{"Answers", "received", "", func(g *result.Group) uint64 { return g.Answers }},
	{"Lost", "false reaps: living connections closed by the target", bad, func(g *result.Group) uint64 { return g.Lost }},
	{"Starved", "closed because this client did not send in time", warn, func(g *result.Group) uint64 { return g.Starved }},
	{"Reaped", "dead connections closed by the target", "", func(g *result.Group) uint64 { return g.Reaped }},
	{"Early", "reaped before their timeout", bad, func(g *result.Group) uint64 { return g.Early }},
	{"Kept", "dead connections open at the end of the run", warn, func(g *result.Group) uint64 { return g.Kept }},
	{"Ended", "closed by this client", "", func(g *result.Group) uint64 { return g.Ended }},
	{"Told", "received a goodbye before the close", "", func(g *result.Group) uint64 { return g.Told }},
	{"Reset", "closed by the target with a reset", "", func(g *result.Group) uint64 { return g.Reset }},
	{"Garbled", "received something other than their echo", bad, func(g *result.Group) uint64 { return g.Garbled }},
	{"Swapped", "answers of other connections", bad, func(g *result.Group) uint64 { return g.Swapped }},
	{"Doubled", "answers that came more than once", bad, func(g *result.Group) uint64 { return g.Doubled }},
	{"Skipped", "messages without an answer although later ones have one", bad, func(g *result.Group) uint64 { return g.Skipped }},
	{"Unanswered", "connections that waited too long for an answer at the end", warn, func(g *result.Group) uint64 { return g.Unanswered }},
	{"Unanswered messages", "waited too long, or were lost with their connection", warn, func(g *result.Group) (n uint64) {
		for _, e := range g.Exchanges {
			if e != nil {
				n += e.Unanswered
			}
		}
		return n
	}},
}

// groups returns a table with a column per group and one for their sum: there are more counters
// than groups.
func groups(r *result.Result) table {
	t := table{Title: "Groups of connections", Numbers: true, Head: []string{""}}
	all := make([]result.Group, 0, len(r.Groups)+1)
	for _, g := range r.Groups {
		all = append(all, g)
		t.Head = append(t.Head, g.Name)
	}
	if len(all) == 0 {
		return t
	}
	if len(all) > 1 {
		all = append(all, r.Total())
		t.Head = append(t.Head, "all")
	}
	t.words("Behaviour", all, func(g *result.Group) string { return g.Behaviour })
	for _, c := range counters {
		cells := []cell{{Text: c.name, Hint: c.hint}}
		for i := range all {
			n := cell{Text: count(c.of(&all[i]))}
			if c.of(&all[i]) > 0 {
				n.Class = c.grade
			}
			cells = append(cells, n)
		}
		t.Rows = append(t.Rows, cells)
	}
	t.words("Time to connect", all, func(g *result.Group) string { return spread(g.Connect) })
	t.words("Lateness", all, func(g *result.Group) string { return spread(g.Lateness) })
	t.words("Lifetime", all, func(g *result.Group) string { return spread(g.Lifetime) })
	return t
}

// words adds a row of texts, unless all are empty.
func (t *table) words(name string, all []result.Group, of func(*result.Group) string) {
	cells, said := []cell{{Text: name}}, false
	for i := range all {
		c := cell{Text: of(&all[i]), Class: "text"}
		said = said || c.Text != "" && c.Text != none
		cells = append(cells, c)
	}
	if said {
		t.Rows = append(t.Rows, cells)
	}
}

// quantiles are the rows of a quantile table.
var quantiles = []struct {
	name string
	q    float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"Max", 1}}

// quantileTable returns a table with a column per Histogram of large, with the quantiles of small,
// if any, as hints.
func quantileTable(head, counted string, names []string, large, small []*result.Histogram) table {
	t := table{Numbers: true, Head: append([]string{head}, names...)}
	counts := []string{counted}
	for _, h := range large {
		counts = append(counts, count(h.Count()))
	}
	t.add(counts...)
	for _, row := range quantiles {
		cells := []cell{{Text: row.name}}
		for i, h := range large {
			c := cell{Text: duration(h.Quantile(row.q))}
			if small != nil {
				c.Hint = quantile(small[i], "raw", row.q)
			}
			cells = append(cells, c)
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func failures(r *result.Result) table {
	t := table{Title: "Why connections could not be opened", Numbers: true}
	reasons := r.Failures.Reasons()
	var rest uint64
	for i, why := range reasons {
		if i < 20 {
			t.add(why, count(r.Failures[why]))
		} else {
			rest += r.Failures[why]
		}
	}
	if rest > 0 {
		t.add(plural(len(reasons)-20, "other reason", "other reasons"), count(rest))
	}
	return t
}

func costs(c *result.Costs) table {
	t := table{Title: "Cost per connection", Numbers: true}
	if c == nil {
		return t
	}
	ends := "both ends"
	if !c.BothEnds {
		ends = "this end"
	}
	t.add("Connections held", count(c.Connections))
	t.add("Server memory", size(c.ServerBytes))
	if c.BareBytes > 0 {
		t.add("of which gnet", size(c.BareBytes))
		t.add("of which the reaper", size(c.ServerBytes-c.BareBytes))
	}
	t.add("Kernel memory, "+ends, size(c.KernelBytes))
	t.add("Client memory", size(c.ClientBytes))
	t.add("Server CPU while held", duration(c.ServerCPU))
	t.add("Client CPU while held", duration(c.ClientCPU))
	return t
}

func machines(r *result.Result) table {
	t := table{Title: "Machines", Head: []string{"Name", "CPUs", "CPU", "Memory", "Kernel", "Go", "Descriptors"}}
	for _, m := range r.Machines {
		t.add(m.Name, count(m.CPUs), m.CPU, size(float64(m.Memory)), m.Kernel, m.Go, count(m.Descriptors))
	}
	return t
}

func setup(r *result.Result) table {
	t := table{Title: "Setup"}
	s := &r.Setup
	t.add("Targets", strings.Join(some(s.Targets, 12), ", "))
	t.add("Processes", plural(s.Clients, "client", "clients")+", "+plural(s.Servers, "launched server", "launched servers"))
	t.add("Idle timeout, tick", known(s.Timeout)+", "+known(s.Tick))
	for _, name := range slices.Sorted(maps.Keys(s.Flags)) {
		if v := s.Flags[name]; v != "" && v != "[]" && v != "0" && v != "0s" && v != "false" {
			t.add("--"+name, v)
		}
	}
	return t
}

// ownDelay returns how late the program itself was.
func ownDelay(r *result.Result) table {
	var late []*result.Histogram
	names := slices.Sorted(maps.Keys(r.OwnDelay))
	for _, name := range names {
		late = append(late, r.OwnDelay[name])
	}
	if len(late) == 0 {
		return table{}
	}
	t := quantileTable("Phase", "Actions and wakeups", names, late, nil)
	t.Title = "Own delay of this program"
	return t
}

func known(d time.Duration) string {
	if d == 0 {
		return "unknown"
	}
	return duration(d)
}
