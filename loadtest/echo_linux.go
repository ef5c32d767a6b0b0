package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newEcho() *cobra.Command {
	var o options
	var length time.Duration
	var pair string
	var rounds int
	var sendRate float64
	cmd := &cobra.Command{
		Use: "echo", Short: "Send messages one after the other and count the answers", Args: noArgs,
		Long: `Send messages one after the other on each connection, and measure the rate and latency of the answers. With --send-rate
messages are sent at a rate, whether or not earlier ones are answered: only then does the latency show a target that stands
still, because each message counts from its intended time (wrk2 calls it corrected for coordinated omission). --pair measures
a second target in turn with the first, round by round: the ratio within a round is more precise than two separate runs.
Each turn has files of its own: --out x.json writes x-1a.json and x-1b.json for the first round.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			interval, err := o.sendInterval(sendRate)
			if err := o.check(err, unless(length >= time.Second && rounds >= 1, "--for and --rounds: set at least 1s and 1"),
				unless(pair == "" || len(o.Targets) > 0, "--pair needs a --target to compare with")); err != nil {
				return err
			}
			if pair == "" {
				_, err := o.echo(cmd, interval, length)
				return err
			}
			second, err := resolve(pair)
			if err != nil {
				return usageError{fmt.Errorf("--pair %s: %w", pair, err)}
			}
			return o.echoInTurns(cmd, second, interval, length, rounds)
		},
	}
	o.add(cmd, 100, time.Second, time.Minute)
	cmd.Flags().DurationVar(&length, "for", 10*time.Second, "duration, with --pair of each round")
	cmd.Flags().StringVar(&pair, "pair", "", "`host:port` of a second target")
	cmd.Flags().Float64Var(&sendRate, "send-rate", 0, "messages per second of all connections together; 0 sends each after the last answer")
	cmd.Flags().IntVar(&rounds, "rounds", 5, "number of rounds with --pair")
	return cmd
}

// sendInterval returns the interval of each connection for a rate of all of them, or 0 for 0.
func (o *options) sendInterval(rate float64) (time.Duration, error) {
	if rate == 0 {
		return 0, nil
	}
	seconds := float64(o.Connections) / rate
	interval := time.Duration(min(seconds, 1e9) * float64(time.Second))
	switch {
	case !(rate > 0) || interval < time.Millisecond:
		return 0, fmt.Errorf("--send-rate is %v: set a positive rate, and at most 1000 per connection", rate)
	case o.exceedsTimeout(interval):
		return 0, fmt.Errorf("--send-rate of %v is too low for %d connections and a --timeout of %v", rate, o.Connections, o.Timeout)
	}
	return interval, nil
}

// echo measures one target, with a message per interval on each connection, or one after the other
// if it is 0. It returns the answers per second.
func (o *options) echo(cmd *cobra.Command, interval, length time.Duration) (rate float64, err error) {
	group := o.behaving(living, load.PingPong, o.Connections, 0)
	if interval > 0 {
		group = o.heartbeats(living, o.Connections, interval)
	}
	err = o.perform(cmd, "echo", []load.Spec{group}, func(r *run) {
		if !r.openAll() {
			return
		}
		r.hold("echo", length)
		r.finished = func() {
			if of := r.res.Total().Exchanges["echo"]; of != nil {
				rate = float64(of.Arrived) / r.res.Length("echo").Seconds()
			}
			if interval == 0 {
				r.note("each message waits for the last answer: while the target stands still none is sent, and the latency " +
					"does not show those that would have waited; --send-rate does")
			}
			r.note("%s answers per second", format.Count(uint64(rate)))
		}
	})
	return rate, err
}

// nameOfTurn returns the name of a file for one turn: x.json becomes x-1a.json for the first target
// of the first round. Names of devices stay.
func nameOfTurn(name string, round, target int) string {
	if name == "" || name == toStdout || strings.HasPrefix(name, "/dev/") {
		return name
	}
	ext := filepath.Ext(name)
	return fmt.Sprintf("%s-%d%c%s", strings.TrimSuffix(name, ext), round+1, 'a'+target, ext)
}

// echoInTurns compares two targets.
func (o *options) echoInTurns(cmd *cobra.Command, second string, interval, length time.Duration, rounds int) error {
	both := []string{o.Targets[0], second}
	source, sources, out, html := o.Source, o.Sources, o.out, o.html
	var ratios []float64
	for round := range rounds {
		var rates [2]float64
		for turn := range both {
			i := turn ^ round&1 // the order alternates
			o.Targets, o.Source, o.Sources = both[i:i+1], source, sources
			o.out, o.html = nameOfTurn(out, round, i), nameOfTurn(html, round, i)
			var err error
			if rates[i], err = o.echo(cmd, interval, length); err != nil {
				return err
			}
			o.beginAt = 0 // of the first turn
		}
		ratios = append(ratios, rates[1]/rates[0])
	}
	slices.Sort(ratios)
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s has %.3f times the answers of %s (median of %d rounds, %.3f to %.3f)\n",
		both[1], ratios[len(ratios)/2], both[0], rounds, ratios[0], ratios[len(ratios)-1])
	return nil
}
