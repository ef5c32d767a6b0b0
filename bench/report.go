package main

import (
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
	sizes   []int
	results []rounds.Results
	netty   string // its version
	missing error  // the reason why Netty was left out
}

func (c comparison) render(o rounds.Options) string {
	table := [][]string{{""}}
	for _, k := range kinds() {
		table[0] = append(table[0], k.name)
	}
	table[0] = append(table[0], nettyName)
	for _, row := range rows {
		for i, n := range c.sizes {
			line := []string{fmt.Sprintf("%s, %s, %s", row.figure, rounds.Thousands(n), row.unit)}
			for _, name := range table[0][1:] {
				line = append(line, c.cell(c.results[i], name, row.figure))
			}
			table = append(table, line)
		}
	}
	return fmt.Sprintf("# Timers compared\n\n%s\n%s\n%s\n%s", o.Setting("go -C bench run ."), intro, rounds.Table(table), c.notes())
}

func (c comparison) cell(r rounds.Results, name, figure string) string {
	if name == nettyName && c.missing != nil {
		return "not installed"
	}
	v := r.Values(name, figure)
	text := v.String()
	if name != base {
		text += " " + v.Ratio(r.Values(base, figure))
	}
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
	for _, k := range kinds() {
		fmt.Fprintf(&b, "- %s: %s\n", strings.TrimSpace(k.name+" "+versions[k.module]), k.note)
	}
	if c.missing != nil {
		fmt.Fprintf(&b, "- %s: %v.\n", nettyName, c.missing)
		return b.String()
	}
	fmt.Fprintf(&b, "- %s %s: %s\n", nettyName, c.netty, nettyNote)
	return b.String()
}
