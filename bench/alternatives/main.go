// Command alternatives measures servers that close idle connections in different ways, for
// docs/alternatives.md and docs/results.md.
//
//	go -C bench run ./alternatives --help
package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/process"
	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

func main() {
	runAsChild()
	rounds.Main("alternatives", "results/alternatives.md", 3, compare)
}

// A load is what the clients of each server do.
type load struct {
	n         int           // number of connections
	living    int           // number of those that go on while the others are silent
	heartbeat time.Duration // time with one byte per connection and second
	timeout   time.Duration // of the server, longer than the interval of the heartbeats
	stop      time.Duration // time for which the process of the server is stopped
}

// compare measures all servers and returns the table.
func compare(o rounds.Options) (string, error) {
	l := load{n: 15_000, living: 200, heartbeat: 2 * time.Second, timeout: 3 * time.Second, stop: 4 * time.Second}
	if o.Quick {
		l = load{n: 200, living: 10, heartbeat: time.Second, timeout: 2 * time.Second, stop: 3 * time.Second}
	}
	results, err := rounds.Take(o, kinds(), func(k kind) (rounds.Figures, error) { return measure(k, l) })
	if err != nil {
		return "", err
	}
	return render(o, l, results), nil
}

// A column is a figure of the table. If there is a base, it is compared with that of this server.
type column struct{ title, figure, base string }

func (c column) String() string { return c.title }

var columns = []column{
	{"heap and stacks, bytes per connection", "bytes", base}, {"echo, CPU µs", "echo", base}, {"close, CPU µs", "close", ""},
	{"late p99, ms", "late", ""}, {"latest, ms", "latest", ""}, {"early", "early", ""},
	{"echo of living ones p99, ms", "living", ""}, {"cut off after a stop, %", "cut", ""},
}

const explanation = `Echo servers with %s connections on loopback. The clients are another process, on the same cores. Each cell has the
median of the rounds, the smallest and the largest in brackets, and the ratio to the first row. With ≈ the two ranges overlap.
Each measurement is a process of its own; a round takes all servers in turn.

- heap and stacks: after a garbage collection, with connections that have sent and received one byte. Buffers of the kernel
  are not included.
- echo: user and system time of the server, while each connection sends a byte once a second for %v.
- close, late, early: then all connections send at once and become silent. From the last byte sent to the end seen by the
  client, less the timeout of %v. Early is the number of connections that were closed before their timeout. Here idle and
  idlenet have OutageGrace -1, because by default they suspend verdicts if all peers fall silent together.
- echo of living ones: %d others go on to exchange a message of 64 bytes each 50 ms, from a process of their own. Of the
  messages that were due from 50 ms before the first close to the last one.
- cut off after a stop: the process is stopped for %v, while each connection goes on to send a byte once a second. The
  part of these living connections that the server has closed. There is no figure if it has closed more than one in a
  hundred before the stop.
`

func render(o rounds.Options, l load, results rounds.Results) string {
	table := rounds.Table(kinds(), columns, func(k kind, c column) string {
		text := results.Cell(k.name, c.figure, c.base)
		if k.name == netty && c.figure == "cut" && text == "-" {
			return "not installed"
		}
		return text
	})
	var notes strings.Builder
	for _, k := range kinds() {
		fmt.Fprintf(&notes, "- %s: %s.\n", k.name, k.note)
	}
	if _, version, err := process.Netty(nettySource); err == nil {
		fmt.Fprintf(&notes, "\nNetty is %s.\n", version)
	}
	return fmt.Sprintf("# Alternatives compared\n\n%s\n%s\n%s\n%s", o.Setting("go -C bench run ./alternatives"),
		fmt.Sprintf(explanation, rounds.Thousands(l.n), l.heartbeat, l.timeout, l.living, l.stop), table, &notes)
}
