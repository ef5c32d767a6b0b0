package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newDoctor() *cobra.Command {
	o := options{Setup: result.Setup{Connections: 100_000}}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the limits of this machine for a number of connections",
		Long: "Check whether this machine can hold a number of connections, and name a fix for each limit that is too low. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Connections < 1 {
				return exitError{fmt.Errorf("--connections is %d: set at least 1", o.Connections), exitUsage}
			}
			return printLimits(cmd, machine.Check(o.setup(o.Connections, 0)))
		},
	}
	cmd.Flags().VarP((*count)(&o.Connections), "connections", "c", "number of connections, such as 500, 100k or 1m")
	cmd.Flags().BoolVar(&o.launch, "launch", true, "the servers run on this machine too")
	return cmd
}

// setup returns the setup of some connections: it has as many processes as their descriptors
// require, and clients apart from them. Connections to 127.0.0.0/8, where launched servers listen,
// come from there.
func (o *options) setup(connections, apart int) result.Setup {
	usable := machine.Descriptors() - 128 // the others are not connections
	processes := func(each int) int { return (connections-1)/max(each, 1) + 1 }
	isRemote := func(target string) bool { return !strings.HasPrefix(target, "127.") }
	switch {
	case o.Source == "none":
		o.Source = ""
	case o.Source == "" && (o.launch || len(o.Targets) > 0 && !slices.ContainsFunc(o.Targets, isRemote)):
		o.Source = "127.0.0.0/8"
	}
	switch {
	case o.Source == "":
		o.Sources = 1
	case o.Sources == 0:
		o.Sources = max(1, connections/1000)
	}
	s := o.Setup
	s.Connections, s.Clients = connections, max(processes(usable), s.Clients)+apart
	if o.launch {
		// A server starts to shed at 15/16 of its limit, and the kernel does not spread connections
		// evenly over servers.
		s.Servers = max(processes(usable*14/16), s.Servers)
	}
	return s
}

// printLimits prints the limits of this machine, and returns an error if one of them is too low.
func printLimits(cmd *cobra.Command, checks machine.Limits) error {
	checks.Print(cmd.OutOrStdout())
	if checks.Worst() == machine.Cannot {
		return exitError{errors.New("this machine cannot hold that many connections"), exitCannot}
	}
	return nil
}
