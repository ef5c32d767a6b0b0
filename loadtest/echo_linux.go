package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newEcho() *cobra.Command {
	var o options
	var length time.Duration
	var pair string
	var rounds int
	cmd := &cobra.Command{
		Use: "echo", Short: "Send messages one after the other and count the answers", Args: noArgs,
		Long: `Send messages one after the other on each connection, and measure the rate and latency of the answers. --pair measures
a second target in turn with the first, round by round: the ratio within a round is more precise than two separate runs.
Each turn has files of its own: --out x.json writes x-1a.json and x-1b.json for the first round.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if length < time.Second || rounds < 1 {
				return usageError{errors.New("--for and --rounds: set at least 1s and 1")}
			}
			if pair == "" {
				return o.echo(cmd, length, nil)
			}
			second, err := resolve(pair)
			if err != nil {
				return usageError{fmt.Errorf("--pair %s: %w", pair, err)}
			}
			if o.launch {
				return usageError{errors.New("--pair needs a --target to compare with")}
			}
			return o.echoInTurns(cmd, second, length, rounds)
		},
	}
	o.add(cmd, 100, time.Second, time.Minute)
	cmd.Flags().DurationVar(&length, "for", 10*time.Second, "duration, with --pair of each round")
	cmd.Flags().StringVar(&pair, "pair", "", "`host:port` of a second target")
	cmd.Flags().IntVar(&rounds, "rounds", 5, "number of rounds with --pair")
	return cmd
}

// echo measures one target. It calls measured with the rate, unless it is nil.
func (o *options) echo(cmd *cobra.Command, length time.Duration, measured func(rate float64)) error {
	group := o.behaving(living, load.PingPong, int(o.connections), 0)
	return o.perform(cmd, "echo", []load.Spec{group}, func(r *run) {
		if !r.openAll() {
			return
		}
		before, _ := r.clients.Report()
		from := time.Now()
		r.hold("echo", length)
		after, _ := r.clients.Report()
		rate := float64(sumOf(after).Answers-sumOf(before).Answers) / time.Since(from).Seconds()
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("%s answers per second", grouped(uint64(rate))))
		if measured != nil {
			measured(rate)
		}
	})
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
func (o *options) echoInTurns(cmd *cobra.Command, second string, length time.Duration, rounds int) error {
	both := []string{o.targets[0], second}
	source, sources, out, html := o.source, o.sources, o.out, o.html
	var ratios []float64
	for round := range rounds {
		var rates [2]float64
		for turn := range both {
			i := turn ^ round&1 // the order alternates
			o.targets, o.source, o.sources = both[i:i+1], source, sources
			o.out, o.html = nameOfTurn(out, round, i), nameOfTurn(html, round, i)
			if err := o.echo(cmd, length, func(rate float64) { rates[i] = rate }); err != nil {
				return err
			}
		}
		ratios = append(ratios, rates[1]/rates[0])
	}
	slices.Sort(ratios)
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s has %.3f times the answers of %s (median of %d rounds, %.3f to %.3f)\n",
		both[1], ratios[len(ratios)/2], both[0], rounds, ratios[0], ratios[len(ratios)-1])
	return nil
}
