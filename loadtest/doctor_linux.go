package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/limits"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
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
			descriptors, err := machine.RaiseDescriptors()
			if err != nil {
				return err
			}
			clients, servers := processCounts(int(connections), descriptors-reservedDescriptors)
			sources := max(1, int(connections)/perSource)
			if !local {
				servers, sources = 0, 1
			}
			return printLimits(cmd, limits.Check(limits.Demand{
				Connections: int(connections), Clients: clients, Servers: servers, Sources: sources, Targets: 1, Loopback: local,
			}))
		},
	}
	cmd.Flags().VarP(&connections, "connections", "c", "number of connections, such as 500, 100k or 1m")
	cmd.Flags().BoolVar(&local, "launch", true, "the servers run on this machine too")
	return cmd
}

// printLimits prints the limits of this machine, and returns an error if one of them is too low.
func printLimits(cmd *cobra.Command, checks []limits.Limit) error {
	limits.Print(cmd.OutOrStdout(), checks)
	if limits.Worst(checks) == limits.Cannot {
		return exitError{errors.New("this machine cannot hold that many connections"), exitCannot}
	}
	return nil
}
