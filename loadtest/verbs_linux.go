package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

// Names of groups and phases.
const (
	living = "living"
	silent = "silent"
	during = "during"
)

// noArgs refuses arguments that are not flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// heartbeats are connections that live by heartbeats.
func (o *options) heartbeats(name string, connections int, interval time.Duration) load.Spec {
	return load.Spec{
		Name: name, Behaviour: load.Heartbeat, Connections: connections, Interval: interval, Jitter: o.jitter, Size: o.size, Timeout: o.reaps(),
	}
}

// checkOthers checks the flags of those that are served meanwhile.
func (o *options) checkOthers(livings int, every, calm time.Duration) error {
	if livings < 1 || every < time.Millisecond || calm <= 0 {
		return usageError{errors.New("--living, --every and --calm: set them above 0")}
	}
	if o.tooSeldom(every) {
		return usageError{fmt.Errorf("--every of %v is too seldom for a --timeout of %v", every, o.timeout)}
	}
	return nil
}

// reaps returns after which time of silence the target closes, 0 if it does not or that is not known.
func (o *options) reaps() time.Duration {
	if o.bare {
		return 0
	}
	return o.timeout
}

// letDie lets groups fall silent, and waits until the target has closed them all, or should have long ago.
func (r *run) letDie(groups ...string) bool {
	if r.opt.reaps() == 0 {
		return r.goes()
	}
	var orders []load.Command
	for _, g := range groups {
		orders = append(orders, load.Command{Silence: g})
	}
	return r.phase(silent, r.opt.reaps()+2*r.opt.tick+grace, func(now load.Report) bool {
		n := uint64(0)
		for _, g := range groups {
			n += openOf(now, g)
		}
		return n == 0
	}, orders...)
}

// hold lets everything go on for a time, or until nothing is left, and measures what that costs.
func (r *run) hold(name string, d time.Duration) bool {
	report, _ := r.crew.Report()
	from := r.read(sumOf(report).Open)
	on := r.phase(name, d, func(now load.Report) bool { return sumOf(now).Open == 0 })
	report, _ = r.crew.Report()
	r.held = r.read(sumOf(report).Open)
	r.costs(from)
	return on
}

func newHold() *cobra.Command {
	var o options
	var hold time.Duration
	var reap bool
	cmd := &cobra.Command{
		Use: "hold", Short: "Open connections, hold them with heartbeats, let them fall silent", Args: noArgs,
		Long: `Open connections, hold them with heartbeats, and let all of them fall silent: the target has to close every one after its
timeout, and none before. A target that holds its verdicts while nothing is heard, as idlewheel does, closes them later:
serve it with --outage-grace -1s, as the server that is launched without a --target.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if hold <= 0 {
				return usageError{fmt.Errorf("--hold is %v: set a positive duration", hold)}
			}
			return o.perform(cmd, "hold", []load.Spec{o.heartbeats(living, int(o.connections), o.heartbeat)}, func(r *run) {
				if r.open() && r.hold("hold", hold) && reap {
					r.letDie(living)
				}
			})
		},
	}
	o.add(cmd, 1000, 30*time.Second, time.Minute)
	cmd.Flags().DurationVar(&hold, "hold", time.Minute, "for how long")
	cmd.Flags().BoolVar(&reap, "reap", true, "let them fall silent in the end")
	return cmd
}

func newStorm() *cobra.Command {
	var o options
	var livings count = 200
	var every, calm time.Duration
	cmd := &cobra.Command{
		Use: "storm", Short: "Let thousands fall silent in the same moment, while others are served", Args: noArgs,
		Long: `Let thousands fall silent in the same moment, so that all are dead at once, while others send message after message: how long
these wait before, during and after the storm is what users feel.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkOthers(int(livings), every, calm); err != nil {
				return err
			}
			return o.perform(cmd, "storm", []load.Spec{o.heartbeats(living, int(livings), every), o.heartbeats(silent, int(o.connections), o.heartbeat)}, func(r *run) { r.storm(calm) })
		},
	}
	o.add(cmd, 10_000, 3*time.Second, 10*time.Second)
	cmd.Flags().Var(&livings, "living", "how many others are served meanwhile")
	cmd.Flags().DurationVar(&every, "every", 20*time.Millisecond, "how often each of them sends a message")
	cmd.Flags().DurationVar(&calm, "calm", 5*time.Second, "for how long is measured before and after")
	return cmd
}

// storm has all of a group die together.
func (r *run) storm(calm time.Duration) {
	gone := func(now load.Report) bool { return openOf(now, silent) == 0 }
	timeout := r.opt.reaps()
	_ = r.open() &&
		r.hold("before", calm) &&
		r.phase("silence", timeout-timeout/20, gone, load.Command{LastWord: silent}) &&
		r.phase(during, timeout/20+2*r.opt.tick+grace, gone) &&
		r.phase("after", calm, nil)
}

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
	timeout, pids := r.opt.reaps(), r.serverPids()
	signal := func(sig syscall.Signal) bool {
		for _, pid := range pids {
			if err := syscall.Kill(pid, sig); err != nil {
				r.fail("sending %v to process %d: %v", sig, pid, err)
			}
		}
		return r.goes()
	}
	goOn := func() { // also if not all could be stopped, or the run is over
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	if !r.open() || !r.hold("before", timeout) {
		return
	}
	if signal(syscall.SIGSTOP) {
		_ = r.phase("stopped", d, nil)
	}
	goOn()
	_ = r.phase("after", timeout+2*r.opt.tick+time.Second, nil) && r.letDie(living)
}
