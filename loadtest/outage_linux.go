package main

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

var outage = scenario{
	use: "outage", args: noArgs, short: "Stop the server for longer than its timeout, while heartbeats arrive",
	long: `Stop the server (SIGSTOP) for longer than its timeout, while heartbeats arrive, and continue it (SIGCONT). A reaper that
reads its clock before its sockets closes living connections.`,
	connections: 10_000, heartbeat: 500 * time.Millisecond, timeout: 2 * time.Second,
	flags: func(o *options, f *pflag.FlagSet) {
		f.DurationVar(&o.length, "outage", 0, "time for which the server is stopped; 0 is 1.5 times --timeout")
	},
	groups: func(o *options, p *problems) []load.Spec {
		if p.err() == nil { // otherwise these would complain about the same flags
			o.checkOutage(p)
		}
		o.Patience += o.length // messages wait during the stop, and must be answered after it
		return []load.Spec{o.group(beating, load.Heartbeat, o.Connections, o.heartbeat)}
	},
	script: func(r *run) {
		timeout := r.opt.targetTimeout()
		_ = r.openAll() &&
			r.hold("before", timeout) &&
			r.stopServers(r.opt.length) &&
			r.phase("after", timeout+2*r.opt.Tick+time.Second, nil) &&
			r.awaitReaping()
	},
}

// checkOutage sets the length of the outage, and checks which processes it stops.
func (o *options) checkOutage(p *problems) {
	if o.length == 0 {
		o.length = o.Timeout * 3 / 2
	}
	p.require(o.length >= 0, "--outage is %v: set a positive duration", o.length)
	p.require(o.Timeout != 0, "--timeout is 0: set the timeout of the target")
	p.require(o.launch || len(o.pids) > 0, "name the processes of the --target with --pid")
	isPort := func(port int) bool {
		return slices.ContainsFunc(o.Targets, func(t string) bool { return int(netip.MustParseAddrPort(t).Port()) == port })
	}
	for _, pid := range o.pids {
		ports, err := machine.ListeningPorts(pid)
		p.add(err)
		p.require(err != nil || slices.ContainsFunc(ports, isPort),
			"--pid %d: this process has no listening socket of %s", pid, strings.Join(o.Targets, ", "))
	}
}

// stopServers stops the servers during a phase.
func (r *run) stopServers(d time.Duration) bool {
	pids := r.serverPids()
	defer func() { // in every case: a stopped server does not end
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			r.fail("sending %v to process %d: %v", syscall.SIGSTOP, pid, err)
		}
	}
	return r.phase("stopped", d, nil)
}
