package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newDoctor() *cobra.Command {
	var connections count = 100_000
	var local bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the limits of this machine for a number of connections", Args: noArgs,
		Long: "Check whether this machine can hold a number of connections, and name a fix for each limit that is too low. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if connections < 1 {
				return exitError{fmt.Errorf("--connections is %d: set at least 1", connections), exitUsage}
			}
			d, _ := demandOf(int(connections), local)
			return printLimits(cmd, machine.Check(d))
		},
	}
	cmd.Flags().VarP(&connections, "connections", "c", "number of connections, such as 500, 100k or 1m")
	cmd.Flags().BoolVar(&local, "launch", true, "the servers run on this machine too")
	return cmd
}

// demandOf returns what some connections demand of this machine, with as many processes as their
// descriptors require, and the descriptors that a process may have.
func demandOf(connections int, launch bool) (d result.Setup, descriptors int) {
	descriptors = machine.Descriptors()
	usable := descriptors - 128 // the others are not connections
	processes := func(each int) int { return max(1, (connections+max(each, 1)-1)/max(each, 1)) }
	d = result.Setup{Connections: connections, Clients: processes(usable), Sources: 1}
	if launch {
		// A server starts to shed at 15/16 of its limit, and the kernel does not spread connections
		// evenly over servers.
		d.Servers, d.Sources = processes(usable*14/16), max(1, connections/perSource)
	}
	return d, descriptors
}

// printLimits prints the limits of this machine, and returns an error if one of them is too low.
func printLimits(cmd *cobra.Command, checks machine.Limits) error {
	checks.Print(cmd.OutOrStdout())
	if checks.Worst() == machine.Cannot {
		return exitError{errors.New("this machine cannot hold that many connections"), exitCannot}
	}
	return nil
}
