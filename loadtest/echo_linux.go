package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/doctor"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newEcho() *cobra.Command {
	var o options
	var length time.Duration
	var pair string
	var rounds int
	cmd := &cobra.Command{
		Use: "echo", Short: "Send messages one after the other, and measure how many are answered", Args: noArgs,
		Long: `Send messages one after the other over each connection, and measure how many are answered and how long that takes. With --pair
a second target is measured in turns with the first, round by round: the ratio in one round says more than the figures of two days.`,
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
	cmd.Flags().DurationVar(&length, "for", 10*time.Second, "how long it goes on, each round with --pair")
	cmd.Flags().StringVar(&pair, "pair", "", "`host:port` of a second target")
	cmd.Flags().IntVar(&rounds, "rounds", 5, "how many rounds, with --pair")
	return cmd
}

// echo measures once. A function that is not nil gets what was measured.
func (o *options) echo(cmd *cobra.Command, length time.Duration, measured func(rate float64)) error {
	return o.perform(cmd, "echo", []load.Spec{{Name: living, Behaviour: load.PingPong, Connections: int(o.connections), Size: o.size, Timeout: o.reaps()}}, func(r *run) {
		if !r.open() {
			return
		}
		before, _ := r.crew.Report()
		from := time.Now()
		r.hold("echo", length)
		after, _ := r.crew.Report()
		rate := float64(sumOf(after).Answers-sumOf(before).Answers) / time.Since(from).Seconds()
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("%s answers a second", grouped(uint64(rate))))
		if measured != nil {
			measured(rate)
		}
	})
}

// echoInTurns compares two targets.
func (o *options) echoInTurns(cmd *cobra.Command, second string, length time.Duration, rounds int) error {
	both := []string{o.targets[0], second}
	source, sources := o.source, o.sources
	var ratios []float64
	for round := range rounds {
		var rates [2]float64
		for turn := range both {
			i := turn ^ round&1 // who was first is second the next time
			o.targets, o.source, o.sources = both[i:i+1], source, sources
			if err := o.echo(cmd, length, func(rate float64) { rates[i] = rate }); err != nil {
				return err
			}
		}
		ratios = append(ratios, rates[1]/rates[0])
	}
	slices.Sort(ratios)
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s has %.3f of the answers of %s (median of %d rounds, %.3f to %.3f)\n",
		both[1], ratios[len(ratios)/2], both[0], rounds, ratios[0], ratios[len(ratios)-1])
	return nil
}

func newMerge() *cobra.Command {
	var o options
	var expected int
	cmd := &cobra.Command{
		Use: "merge FILE...", Short: "Add up results of several machines",
		Long: `Add up results that were written with --out by several machines that have loaded the same target at the same time (--begin-at).
A file may also be the log of a run with --out /dev/stdout.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name the files that were written with --out")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.expect.check(); err != nil {
				return usageError{err}
			}
			if expected != 0 && expected != len(args) {
				return usageError{fmt.Errorf("--expect-results is %d, and there are %d files", expected, len(args))}
			}
			var all []*result.Result
			for _, name := range args {
				r, err := result.Read(name)
				if err != nil {
					return err
				}
				all = append(all, r)
			}
			sum, err := result.Merge(all)
			if err != nil {
				return err
			}
			return o.report(cmd.OutOrStdout(), sum)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&expected, "expect-results", 0, "how many files there have to be; 0 is any `number`")
	cmd.Flags().StringVar(&o.out, "out", "", "write the sum to a `file`, as JSON")
	cmd.Flags().StringVar(&o.html, "html", "", "write a report to a `file`, as a page of HTML")
	o.expect.add(cmd)
	return cmd
}

func newDoctor() *cobra.Command {
	var connections count = 100_000
	var local bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this machine can hold as many connections", Args: noArgs,
		Long: "Check whether this machine can hold as many connections, and say what to do if it cannot. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if connections < 1 {
				return usageError{fmt.Errorf("--connections is %d: set at least 1", connections)}
			}
			descriptors, err := machine.RaiseDescriptors()
			if err != nil {
				return err
			}
			clients, servers := processes(int(connections), descriptors-reserve)
			if !local {
				servers = 0
			}
			checks := doctor.Examine(doctor.Wish{
				Connections: int(connections), Clients: clients, Servers: servers, Sources: max(1, int(connections)/perSource), Targets: 1,
				Loopback: local,
			})
			doctor.Print(cmd.OutOrStdout(), checks)
			if doctor.Worst(checks) == doctor.Cannot {
				return cannotError{errors.New("this machine cannot hold as many connections")}
			}
			return nil
		},
	}
	cmd.Flags().VarP(&connections, "connections", "c", "how many connections, such as 500, 100k or 1m")
	cmd.Flags().BoolVar(&local, "launch", true, "the servers are launched here as well")
	return cmd
}
