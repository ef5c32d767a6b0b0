package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newHold() *cobra.Command {
	var o options
	var hold time.Duration
	var reap bool
	cmd := &cobra.Command{
		Use: "hold", Short: "Open connections, hold them with heartbeats, let them fall silent", Args: noArgs,
		Long: `Open connections, hold them with heartbeats, and let all of them fall silent: the target has to close every one after its
timeout, and none before. A target that holds its verdicts while nothing is heard, as idlewheel does, closes them later:
serve it with --outage-closeGrace -1s, as the server that is launched without a --target.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if hold <= 0 {
				return usageError{fmt.Errorf("--hold is %v: set a positive duration", hold)}
			}
			return o.perform(cmd, "hold", []load.Spec{o.heartbeats(living, int(o.connections), o.heartbeat)}, func(r *run) {
				if r.openAll() && r.hold("hold", hold) && reap {
					r.awaitReaping(living)
				}
			})
		},
	}
	o.add(cmd, 1000, 30*time.Second, time.Minute)
	cmd.Flags().DurationVar(&hold, "hold", time.Minute, "for how long")
	cmd.Flags().BoolVar(&reap, "reap", true, "let them fall silent in the end")
	return cmd
}
