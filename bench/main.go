// Command bench compares this module's timers with other libraries and with Netty's
// HashedWheelTimer, and writes one table.
//
//	go run . --help
package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/idlewheel/idlewheel/bench/internal/rounds"
)

func main() {
	o := rounds.Flags("results/timers.md", 7)
	text, err := compare(o)
	if err == nil {
		err = o.Write(text)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// compare measures all subjects and returns the table.
func compare(o rounds.Options) (string, error) {
	c := comparison{sizes: []int{10_000, 100_000, 1_000_000}}
	operations, expiry := 300_000, time.Second
	if o.Quick {
		c.sizes, operations, expiry = []int{1_000}, 10_000, 100*time.Millisecond
	}
	names := make([]string, 0, len(kinds()))
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	netty, missing := startNetty()
	if c.missing = missing; missing == nil {
		defer netty.Close()
		c.netty = netty.version
		names = append(names, nettyName)
	}
	take := func(o rounds.Options, n int) (rounds.Results, error) {
		l := load{n, max(1, operations/n), expiry}
		return o.Take(names, func(name string) (rounds.Figures, error) {
			if name == nettyName {
				return netty.measure(l)
			}
			return measure(kinds()[slices.Index(names, name)], l)
		})
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
