package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newHold() *cobra.Command {
	var o options
	var hold time.Duration
	var reap bool
	cmd := &cobra.Command{
		Use: "hold", Short: "Open connections, send heartbeats, stop sending", Args: noArgs,
		Long: `Open connections, send heartbeats, and stop sending on all of them. The target must close every connection after
its timeout, and none before. A target that postpones reaping while all peers are silent, as idlewheel does, closes them
later: start it with --outage-grace -1s, as the launched server is.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(unless(hold > 0, "--hold is %v: set a positive duration", hold)); err != nil {
				return err
			}
			return o.perform(cmd, "hold", []load.Spec{o.heartbeats(beating, o.Connections, o.heartbeat)}, func(r *run) {
				if r.openAll() && r.hold("hold", hold) && reap {
					r.awaitReaping()
				}
			})
		},
	}
	o.add(cmd, 1000, 30*time.Second, time.Minute)
	cmd.Flags().DurationVar(&hold, "hold", time.Minute, "time with heartbeats")
	cmd.Flags().BoolVar(&reap, "reap", true, "stop sending at the end, and wait for the reaps")
	return cmd
}
