package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

func newStall() *cobra.Command {
	var o options
	var stall time.Duration
	cmd := &cobra.Command{
		Use: "stall", Short: "Stop the server for longer than its timeout, while heartbeats arrive", Args: noArgs,
		Long: `Stop the server (SIGSTOP) for longer than its timeout, while heartbeats go on to arrive, and let it go on (SIGCONT): a reaper that
looks at its clock before it looks at its sockets closes the living.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if stall == 0 {
				stall = o.timeout * 3 / 2
			}
			switch {
			case stall < 0:
				return usageError{fmt.Errorf("--stall is %v: set a positive duration", stall)}
			case o.timeout == 0:
				return usageError{errors.New("--timeout is 0: set that of the target")}
			case len(o.targets) > 0 && len(o.pids) == 0:
				return usageError{errors.New("a --target can be stopped only if you name its processes with --pid")}
			}
			return o.perform(cmd, "stall", []load.Spec{o.heartbeats(living, int(o.connections), o.heartbeat)}, func(r *run) { r.stall(stall) })
		},
	}
	o.add(cmd, 10_000, 500*time.Millisecond, 2*time.Second)
	cmd.Flags().DurationVar(&stall, "stall", 0, "for how long; 0 is one and a half of --timeout")
	return cmd
}

// stall stops the servers for a time.
func (r *run) stall(d time.Duration) {
	timeout, pids := r.opt.targetTimeout(), r.serverPids()
	signal := func(sig syscall.Signal) bool {
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil {
				r.fail("sending %v to process %d: %v", sig, pid, err)
			}
		}
		return r.running()
	}
	resume := func() { // also if not all could be stopped, or the run is over
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	if !r.openAll() || !r.hold("before", timeout) {
		return
	}
	if signal(syscall.SIGSTOP) {
		_ = r.phase("stopped", d, nil)
	}
	resume()
	_ = r.phase("after", timeout+2*r.opt.tick+time.Second, nil) && r.awaitReaping(living)
}
