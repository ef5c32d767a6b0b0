package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

func newOutage() *cobra.Command {
	var o options
	var length time.Duration
	cmd := &cobra.Command{
		Use: "outage", Short: "Stop the server for longer than its timeout, while heartbeats arrive", Args: noArgs,
		Long: `Stop the server (SIGSTOP) for longer than its timeout, while heartbeats arrive, and continue it (SIGCONT). A reaper that
reads its clock before its sockets closes living connections.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if length == 0 {
				length = o.Timeout * 3 / 2
			}
			p := problems{
				unless(length >= 0, "--outage is %v: set a positive duration", length),
				unless(o.Timeout != 0, "--timeout is 0: set the timeout of the target"),
				unless(len(o.Targets) == 0 || len(o.pids) > 0, "name the processes of the --target with --pid"),
			}
			for _, pid := range o.pids {
				p.add(o.checkListens(pid))
			}
			if err := p.err(); err != nil {
				return err
			}
			o.Patience += length // messages wait during the stop, and must be answered after it
			return o.perform(cmd, "outage", []load.Spec{o.heartbeats(beating, o.Connections, o.heartbeat)}, func(r *run) { r.stopServers(length) })
		},
	}
	o.add(cmd, 10_000, 500*time.Millisecond, 2*time.Second)
	cmd.Flags().DurationVar(&length, "outage", 0, "time for which the server is stopped; 0 is 1.5 times --timeout")
	return cmd
}

// checkListens returns an error unless the process has a listening socket of a target.
func (o *options) checkListens(pid int) error {
	ports, err := machine.ListeningPorts(pid)
	if err != nil {
		return err
	}
	for _, t := range o.Targets {
		if slices.Contains(ports, int(netip.MustParseAddrPort(t).Port())) {
			return nil
		}
	}
	return fmt.Errorf("--pid %d: this process has no listening socket of %s", pid, strings.Join(o.Targets, ", "))
}

// stopServers stops the servers for a time.
func (r *run) stopServers(d time.Duration) {
	timeout, pids := r.opt.targetTimeout(), r.serverPids()
	resume := func() { // in every case: a stopped server does not end
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	if !r.openAll() || !r.hold("before", timeout) {
		return
	}
	func() {
		defer resume()
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				r.fail("sending %v to process %d: %v", syscall.SIGSTOP, pid, err)
			}
		}
		_ = r.phase("stopped", d, nil)
	}()
	_ = r.phase("after", timeout+2*r.opt.Tick+time.Second, nil) && r.awaitReaping()
}
