// Command bench compares this module's timers with other libraries and with Netty's
// HashedWheelTimer, and writes one table.
//
//	go run . --help
package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

func main() { rounds.Main("bench", "results/timers.md", 7, compare) }

// compare measures all subjects with each number of timers, and returns the table.
func compare(o rounds.Options) (string, error) {
	sizes, operations, expiry := []int{10_000, 100_000, 1_000_000}, 300_000, time.Second
	if o.Quick {
		sizes, operations, expiry = []int{1_000}, 10_000, 100*time.Millisecond
	}
	netty := startNetty()
	if netty.vm != nil {
		defer netty.vm.Close()
	}
	all := append(kinds(), netty)
	take := func(o rounds.Options, n int) (rounds.Results, error) {
		l := load{n, max(1, operations/n), expiry}
		return rounds.Take(o, all, func(k kind) (rounds.Figures, error) { return measure(k, l) })
	}
	if _, err := take(rounds.Options{Runs: 1}, sizes[0]); err != nil { // a warm-up
		return "", err
	}
	results := make([]rounds.Results, len(sizes))
	for i, n := range sizes {
		var err error
		if results[i], err = take(o, n); err != nil {
			return "", err
		}
	}
	return render(o, all, sizes, results), nil
}

// figures are the rows of the table for each number of timers.
var figures = []struct{ name, unit string }{
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

// A row is a figure for a number of timers.
type row struct {
	figure, title string
	results       rounds.Results
}

func (r row) String() string { return r.title }

func (r row) cell(k kind) string {
	if k.name == nettyName && len(r.results[k.name][r.figure]) == 0 {
		return "not installed"
	}
	text := r.results.Cell(k.name, r.figure, base)
	if early := r.results[k.name]["early"]; r.figure == "expire" && early.Median() > 0 {
		text += fmt.Sprintf(", %.0f %% early", early.Median())
	}
	return text
}

// render returns the table with the results for each number of timers.
func render(o rounds.Options, kinds []kind, sizes []int, results []rounds.Results) string {
	var rows []row
	for _, f := range figures {
		for i, n := range sizes {
			rows = append(rows, row{f.name, fmt.Sprintf("%s, %s, %s", f.name, rounds.Thousands(n), f.unit), results[i]})
		}
	}
	return fmt.Sprintf("# Timers compared\n\n%s\n%s\n%s\n%s",
		o.Setting("go -C bench run ."), intro, rounds.Table(rows, kinds, row.cell), notes(kinds))
}

// notes returns the version and the usage of each subject.
func notes(kinds []kind) string {
	versions := map[string]string{}
	info, _ := debug.ReadBuildInfo() // each program of a module has it
	for _, d := range info.Deps {
		versions[d.Path] = d.Version
	}
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "- %s: %s\n", strings.TrimSpace(k.name+" "+cmp.Or(k.version, versions["github.com/"+k.name])), k.note)
	}
	return b.String()
}
