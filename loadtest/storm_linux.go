package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newStorm() *cobra.Command {
	var o options
	var livingCount count = 200
	var every, calm time.Duration
	cmd := &cobra.Command{
		Use: "storm", Short: "Stop sending on thousands of connections at once, while others are served", Args: noArgs,
		Long: `Stop sending on thousands of connections at once, so that all time out together, while others send messages. The
latency of the others before, during and after the storm shows what users notice.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkOthers(int(livingCount), every, calm); err != nil {
				return err
			}
			groups := []load.Spec{
				apart(o.heartbeats(living, int(livingCount), every)),
				o.heartbeats(silent, o.Connections, o.heartbeat),
			}
			return o.perform(cmd, "storm", groups, func(r *run) { r.storm(calm) })
		},
	}
	o.add(cmd, 10_000, 3*time.Second, 10*time.Second)
	cmd.Flags().Var(&livingCount, "living", "connections that stay alive")
	cmd.Flags().DurationVar(&every, "every", 20*time.Millisecond, "interval between messages of a living connection")
	cmd.Flags().DurationVar(&calm, "calm", 5*time.Second, "measured time before and after")
	return cmd
}

// storm makes all connections of a group time out together.
func (r *run) storm(calm time.Duration) {
	gone := func(now load.Report) bool { return openOf(now, silent) == 0 }
	timeout := r.opt.targetTimeout()
	_ = r.openAll() &&
		r.hold("before", calm) &&
		r.phase("silence", timeout-timeout/20, gone, load.Command{LastMessage: silent}) &&
		r.phase(during, timeout/20+2*r.opt.Tick+closeGrace, gone) &&
		r.phase("after", calm, nil)
}
