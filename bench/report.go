package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// rows are the rows of the table for each size.
var rows = []struct{ figure, unit string }{
	{"schedule", "ns"}, {"cancel", "ns"}, {"reschedule", "ns"}, {"touch", "ns"}, {"expire", "CPU ns"}, {"memory", "bytes"},
}

const intro = `Each cell has the median of the rounds, the smallest and the largest in brackets, and the ratio to timer.Timer: above 1
costs more. With ≈ the two ranges overlap, so that the difference may be noise. The subjects take turns, and only one
of them exists at a time. The tick is 10 ms.

- schedule: the timers are started, one after the other, until all are pending. They are due within one to two minutes.
- cancel, reschedule, touch: each of the pending timers, in random order. A reschedule moves it to a random instant within
  one to two minutes, earlier or later. A touch is what a connection does for each message: two minutes begin anew.
- expire: all timers become due within one to two seconds. User and system time of the process from the last schedule
  to the last callback, which reads the clock. "early" is the share of callbacks before the deadline.
- memory: growth of heap and stacks per pending timer after a garbage collection. The timers share one callback; the
  handle that the user keeps for each is included.
`

// A comparison has the results for each size.
type comparison struct {
	kinds   []kind
	sizes   []int
	results []rounds.Results
}

func (c comparison) render(o rounds.Options) string {
	table := [][]string{{""}}
	for _, k := range c.kinds {
		table[0] = append(table[0], k.name)
	}
	for _, row := range rows {
		for i, n := range c.sizes {
			line := []string{fmt.Sprintf("%s, %s, %s", row.figure, rounds.Thousands(n), row.unit)}
			for _, k := range c.kinds {
				line = append(line, cell(c.results[i], k.name, row.figure))
			}
			table = append(table, line)
		}
	}
	return fmt.Sprintf("# Timers compared\n\n%s\n%s\n%s\n%s", o.Setting("go -C bench run ."), intro, rounds.Table(table), c.notes())
}

func cell(r rounds.Results, name, figure string) string {
	if name == nettyName && len(r.Values(name, figure)) == 0 {
		return "not installed"
	}
	text := r.Cell(name, figure, base)
	if early := r.Values(name, "early"); figure == "expire" && early.Median() > 0 {
		text += fmt.Sprintf(", %.0f %% early", early.Median())
	}
	return text
}

// notes returns the version and the usage of each subject.
func (c comparison) notes() string {
	versions := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			versions[d.Path] = d.Version
		}
	}
	var b strings.Builder
	for _, k := range c.kinds {
		fmt.Fprintf(&b, "- %s: %s\n", strings.TrimSpace(k.name+" "+cmp.Or(k.version, versions["github.com/"+k.name])), k.note)
	}
	return b.String()
}
