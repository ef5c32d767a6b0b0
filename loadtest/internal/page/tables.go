package page

import (
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
	line := func(name, hint, grade string, of func(*result.Group) uint64) {
		cells := []cell{{Text: name, Hint: hint}}
		for i := range all {
			c := cell{Text: count(of(&all[i]))}
			if of(&all[i]) > 0 {
				c.Class = grade
			}
			cells = append(cells, c)
		}
		t.Rows = append(t.Rows, cells)
	}
	t.words("Behaviour", all, func(g *result.Group) string { return g.Behaviour })
	line("Requested", "", "", func(g *result.Group) uint64 { return uint64(max(g.Connections, 0)) })
	line("Opened", "", "", func(g *result.Group) uint64 { return g.Opened })
	line("Failed", "could not be opened", warn, func(g *result.Group) uint64 { return g.OpenFailed })
	line("Open", "at the end", "", func(g *result.Group) uint64 { return g.Open })
	line("Messages", "sent", "", func(g *result.Group) uint64 { return g.Messages })
	line("Answers", "received", "", func(g *result.Group) uint64 { return g.Answers })
	line("Lost", "false reaps: living connections closed by the target", bad, func(g *result.Group) uint64 { return g.Lost })
	line("Starved", "closed because this client did not send in time", warn, func(g *result.Group) uint64 { return g.Starved })
	line("Reaped", "dead connections closed by the target", "", func(g *result.Group) uint64 { return g.Reaped })
	line("Early", "reaped before their timeout", bad, func(g *result.Group) uint64 { return g.Early })
	line("Kept", "dead connections open at the end of the run", keptGrade(r), func(g *result.Group) uint64 { return g.Kept })
	line("Ended", "closed by this client", "", func(g *result.Group) uint64 { return g.Ended })
	line("Told", "received a goodbye before the close", "", func(g *result.Group) uint64 { return g.Told })
	line("Reset", "closed by the target with a reset", "", func(g *result.Group) uint64 { return g.Reset })
	line("Garbled", "received something other than their echo", bad, func(g *result.Group) uint64 { return g.Garbled })
	line("Unanswered", "waited too long for an answer at the end", warn, func(g *result.Group) uint64 { return g.Unanswered })
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
	t.add("Connections", count(s.Connections))
	t.add("Client processes", count(s.Clients))
	t.add("Servers launched", count(s.Servers))
	t.add("Reaper", map[bool]string{false: "yes", true: "no, bare gnet"}[s.Bare])
	t.add("Idle timeout", known(s.Timeout))
	t.add("Tick", known(s.Tick))
	return t
}

func known(d time.Duration) string {
	if d == 0 {
		return "unknown"
	}
	return duration(d)
}

func phases(r *result.Result) table {
	t := table{Title: "Phases", Numbers: true, Head: []string{"Phase", "From", "To", "Length"}}
	for _, p := range r.Phases {
		if p.To <= p.From {
			t.add(p.Name, duration(p.From), none, none)
			continue
		}
		t.add(p.Name, duration(p.From), duration(p.To), duration(p.To-p.From))
	}
	return t
}
