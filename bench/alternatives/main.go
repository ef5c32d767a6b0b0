// Command alternatives measures servers that close idle connections in different ways, for
// docs/alternatives.md and docs/results.md.
//
//	go -C bench run ./alternatives --help
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/netty"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

// childVerb is the hidden first argument of a process that serves.
const childVerb = "child"

func main() {
	if len(os.Args) == 3 && os.Args[1] == childVerb {
		os.Exit(child(os.Args[2]))
	}
	o := rounds.Flags("results/alternatives.md", 3)
	text, err := compare(o)
	if err == nil {
		err = o.Write(text)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "alternatives: %v\n", err)
		os.Exit(1)
	}
}

// child serves for another process and returns the exit code.
func child(arg string) int {
	var j job
	err := json.Unmarshal([]byte(arg), &j)
	if err == nil {
		err = serve(j, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A load is what the clients of each server do.
type load struct {
	n         int           // number of connections
	heartbeat time.Duration // time with one byte per connection and second
	timeout   time.Duration // of the server, longer than the interval of the heartbeats
	stop      time.Duration // time for which the process of the server is stopped
}

// compare measures all servers and returns the table.
func compare(o rounds.Options) (string, error) {
	l := load{n: 4_000, heartbeat: 2 * time.Second, timeout: 2 * time.Second, stop: 3 * time.Second}
	if o.Quick {
		l.n, l.heartbeat = 200, time.Second
	}
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	results, err := o.Take(names, func(name string) (rounds.Figures, error) { return measure(find(name), l) })
	if err != nil {
		return "", err
	}
	return render(o, l, results), nil
}

// columns are the figures of the table. With ratio, they are compared with those of the first row.
var columns = []struct {
	title, figure string
	ratio         bool
}{
	{"heap and stacks, bytes per connection", "bytes", true}, {"echo, CPU µs", "echo", true}, {"late p99, ms", "late", false},
	{"latest, ms", "latest", false}, {"early", "early", false}, {"cut off after a stop, %", "cut", false},
}

const explanation = `Echo servers with %s connections on loopback. The clients are another process, on the same cores. Each cell has the
median of the rounds, the smallest and the largest in brackets, and the ratio to the first row. With ≈ the two ranges overlap.
Each measurement is a process of its own; a round takes all servers in turn.

- heap and stacks: after a garbage collection, with connections that have sent and received one byte. Buffers of the kernel
  are not included.
- echo: user and system time of the server, while each connection sends a byte once a second for %v.
- late: then all connections become silent. From the last byte sent to the end seen by the client, less the timeout of %v.
  Early is the number of connections that were closed before their timeout. Here idle and idlenet have OutageGrace -1,
  because by default they suspend verdicts if all peers fall silent together.
- cut off after a stop: the process is stopped for %v, while each connection goes on to send a byte once a second. The
  part of these living connections that the server has closed.
`

func render(o rounds.Options, l load, results rounds.Results) string {
	first := kinds()[0].name
	table := [][]string{{""}}
	for _, c := range columns {
		table[0] = append(table[0], c.title)
	}
	var notes strings.Builder
	for _, k := range kinds() {
		row := []string{k.name}
		for _, c := range columns {
			v := results.Values(k.name, c.figure)
			text := v.String()
			if k.serve == nil && c.figure == "cut" && len(v) == 0 {
				text = "not installed"
			}
			if c.ratio && len(v) > 0 && k.name != first {
				text += " " + v.Ratio(results.Values(first, c.figure))
			}
			row = append(row, text)
		}
		table = append(table, row)
		fmt.Fprintf(&notes, "- %s: %s.\n", k.name, k.note)
	}
	if _, version, err := netty.Command(nettySource); err == nil {
		fmt.Fprintf(&notes, "\nNetty is %s.\n", version)
	}
	return fmt.Sprintf("# Alternatives compared\n\n%s\n%s\n%s\n%s", o.Setting("go -C bench run ./alternatives"),
		fmt.Sprintf(explanation, rounds.Thousands(l.n), l.heartbeat, l.timeout, l.stop), rounds.Table(table), &notes)
}
