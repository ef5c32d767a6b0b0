// Command bench compares this module's timers with other libraries and with Netty's
// HashedWheelTimer, and writes one table.
//
//	go run . --help
package main

import (
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

func main() { rounds.Main("bench", "results/timers.md", 7, compare) }

// compare measures all subjects and returns the table.
func compare(o rounds.Options) (string, error) {
	c := comparison{sizes: []int{10_000, 100_000, 1_000_000}}
	operations, expiry := 300_000, time.Second
	if o.Quick {
		c.sizes, operations, expiry = []int{1_000}, 10_000, 100*time.Millisecond
	}
	netty := startNetty()
	if netty.vm != nil {
		defer netty.vm.Close()
	}
	c.kinds = append(kinds(), netty)
	take := func(o rounds.Options, n int) (rounds.Results, error) {
		l := load{n, max(1, operations/n), expiry}
		return rounds.Take(o, c.kinds, func(k kind) (rounds.Figures, error) { return measure(k, l) })
	}
	if _, err := take(rounds.Options{Runs: 1}, c.sizes[0]); err != nil { // a warm-up
		return "", err
	}
	for _, n := range c.sizes {
		results, err := take(o, n)
		if err != nil {
			return "", err
		}
		c.results = append(c.results, results)
	}
	return c.render(o), nil
}
