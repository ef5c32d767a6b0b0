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
		Use: "storm", Short: "Let thousands fall silent in the same moment, while others are served", Args: noArgs,
		Long: `Let thousands fall silent in the same moment, so that all are dead at once, while others send message after message: how long
these wait before, during and after the storm is what users feel.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkOthers(int(livingCount), every, calm); err != nil {
				return err
			}
			return o.perform(cmd, "storm", []load.Spec{o.heartbeats(living, int(livingCount), every), o.heartbeats(silent, int(o.connections), o.heartbeat)}, func(r *run) { r.storm(calm) })
		},
	}
	o.add(cmd, 10_000, 3*time.Second, 10*time.Second)
	cmd.Flags().Var(&livingCount, "living", "how many others are served meanwhile")
	cmd.Flags().DurationVar(&every, "every", 20*time.Millisecond, "how often each of them sends a message")
	cmd.Flags().DurationVar(&calm, "calm", 5*time.Second, "for how long is measured before and after")
	return cmd
}

// storm has all of a group die together.
func (r *run) storm(calm time.Duration) {
	gone := func(now load.Report) bool { return openOf(now, silent) == 0 }
	timeout := r.opt.targetTimeout()
	_ = r.openAll() &&
		r.hold("before", calm) &&
		r.phase("silence", timeout-timeout/20, gone, load.Command{LastMessage: silent}) &&
		r.phase(during, timeout/20+2*r.opt.tick+closeGrace, gone) &&
		r.phase("after", calm, nil)
}
