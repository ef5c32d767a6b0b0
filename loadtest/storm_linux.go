package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

func newStorm() *cobra.Command {
	var o options
	var others others
	cmd := &cobra.Command{
		Use: "storm", Short: "Stop sending on thousands of connections at once, while others are served", Args: noArgs,
		Long: `Stop sending on thousands of connections at once, so that all time out together, while others send messages. The
latency of the others before, during and after the storm shows what users notice.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(o.checkOthers(others)); err != nil {
				return err
			}
			groups := []load.Spec{o.others(others), o.heartbeats(silent, o.Connections, o.heartbeat)}
			return o.perform(cmd, "storm", groups, func(r *run) { r.storm(others.calm) })
		},
	}
	o.add(cmd, 10_000, 3*time.Second, 10*time.Second)
	others.add(cmd, 200, 20*time.Millisecond)
	return cmd
}

// storm makes all connections of a group time out together.
func (r *run) storm(calm time.Duration) {
	gone := func(now result.Counts) bool { return openOf(now, silent) == 0 }
	timeout := r.opt.targetTimeout()
	_ = r.openAll() &&
		r.hold("before", calm) &&
		r.phase("silence", timeout-timeout/20, gone, load.Command{LastMessage: silent}) &&
		r.phase(during, timeout/20+2*r.opt.Tick+closeGrace, gone) &&
		r.phase("after", calm, nil)
}
