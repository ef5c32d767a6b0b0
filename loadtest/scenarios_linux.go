package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// Names of groups and phases.
const (
	living  = "living"    // until the end of the run
	beating = "heartbeat" // until they are silenced
	silent  = "silent"
	during  = "during"

	attackers = "attackers"
)

// A scenario is a verb that loads a target.
type scenario struct {
	use                string
	args               cobra.PositionalArgs
	short, long        string
	connections        int // defaults of the flags
	heartbeat, timeout time.Duration
	flags              func(o *options, f *pflag.FlagSet) // adds the flags of the verb
	// groups returns the groups of connections, and adds the errors in the flags of the verb.
	groups func(o *options, p *problems) []load.Spec
	script func(r *run) // controls the phases
}

// command returns the verb.
func (s scenario) command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: s.use, Args: s.args, Short: s.short, Long: s.long,
		RunE: func(*cobra.Command, []string) error {
			var p problems
			o.check(&p)
			groups := s.groups(&o, &p)
			if err := p.err(); err != nil {
				return err
			}
			if o.pair != "" {
				return o.inTurns(groups, s.script)
			}
			return o.perform(groups, s.script)
		},
	}
	o.add(cmd, s)
	s.flags(&o, cmd.Flags())
	return cmd
}

var hold = scenario{
	use: "hold", short: "Open connections, send heartbeats, stop sending",
	long: `Open connections, send heartbeats, and stop sending on all of them. The target must close every connection after
its timeout, and none before. A target that postpones reaping while all peers are silent, as idlewheel does, closes them
later: start it with --outage-grace -1s, as the launched server is.`,
	connections: 1000, heartbeat: 30 * time.Second, timeout: time.Minute,
	flags: func(o *options, f *pflag.FlagSet) {
		f.DurationVar(&o.length, "hold", time.Minute, "time with heartbeats")
		f.BoolVar(&o.reap, "reap", true, "stop sending at the end, and wait for the reaps")
	},
	groups: func(o *options, p *problems) []load.Spec {
		p.require(o.length > 0, "--hold is %v: set a positive duration", o.length)
		return []load.Spec{o.group(beating, load.Heartbeat, o.Connections, o.heartbeat)}
	},
	script: func(r *run) {
		_ = r.openAll() && r.hold("hold", r.opt.length) && r.opt.reap && r.awaitReaping()
	},
}

var storm = scenario{
	use: "storm", short: "Stop sending on thousands of connections at once, while others are served",
	long: `Stop sending on thousands of connections at once, so that all time out together, while others send messages. The
latency of the others before, during and after the storm shows what users notice.`,
	connections: 10_000, heartbeat: 3 * time.Second, timeout: 10 * time.Second,
	flags: func(o *options, f *pflag.FlagSet) { o.addLiving(f, 200, 20*time.Millisecond) },
	groups: func(o *options, p *problems) []load.Spec {
		return []load.Spec{o.livingGroup(p), o.group(silent, load.Heartbeat, o.Connections, o.heartbeat)}
	},
	script: func(r *run) {
		gone := func(*result.Group) bool { return r.openOf(silent) == 0 }
		timeout := r.opt.targetTimeout()
		_ = r.openAll() &&
			r.hold("before", r.opt.calm) &&
			r.phase("silence", timeout-timeout/20, gone, load.Command{LastMessage: silent}) &&
			r.phase(during, timeout/20+2*r.opt.Tick+closeGrace, gone) &&
			r.phase("after", r.opt.calm, nil)
	},
}

var outage = scenario{
	use: "outage", short: "Stop the server for longer than its timeout, while heartbeats arrive",
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

var churn = scenario{
	use: "churn", short: "Open and close connections at a rate",
	long: `Open connections at --rate, send a message on each, and close it after the answer, by FIN and RST in turn. At most -c
connections exist at the same time.`,
	connections: 1000, heartbeat: time.Second, timeout: time.Minute,
	flags: func(o *options, f *pflag.FlagSet) {
		f.DurationVar(&o.length, "for", 20*time.Second, "duration of the churn")
	},
	groups: func(o *options, p *problems) []load.Spec {
		o.checkLength(p)
		return []load.Spec{o.group("churn", load.Churn, o.Connections, o.heartbeat)}
	},
	script: func(r *run) {
		on := r.phase("churn", r.opt.length, isRefused) && (r.now.Total().OpenFailed == 0 || r.checkReached())
		if all := r.now.Total(); all.Opened > 0 {
			rate := float64(all.Answers) / r.res.Length("churn").Seconds()
			r.note("%s connections per second were opened, used and closed; the requested rate is %s",
				format.Count(uint64(rate)), format.Count(uint64(r.opt.Rate)))
		}
		_ = on && r.phase("after", 2*time.Second, nil, load.Command{Silence: "churn"})
	},
}

// addLiving adds the flags of the connections that stay alive during a storm or an attack.
func (o *options) addLiving(f *pflag.FlagSet, connections int, every time.Duration) {
	o.living = connections
	f.Var((*count)(&o.living), "living", "connections that stay alive")
	f.DurationVar(&o.every, "every", every, "interval between messages of a living connection")
	f.DurationVar(&o.calm, "calm", 5*time.Second, "measured time before and after")
}

// livingGroup checks these flags, and returns their group, which has a client process of its own.
func (o *options) livingGroup(p *problems) load.Spec {
	p.require(o.living >= 1 && o.every >= time.Millisecond && o.calm > 0, "--living, --every and --calm: set positive values")
	p.require(!o.exceedsTimeout(o.every), "--every of %v is too long for a --timeout of %v", o.every, o.Timeout)
	s := o.group(living, load.Heartbeat, o.living, o.every)
	s.Apart = true
	return s
}

// checkLength checks --for.
func (o *options) checkLength(p *problems) {
	p.require(o.length >= time.Second, "--for is %v: set at least 1s", o.length)
}

// group returns a group of connections. Those that expect no echo are never silent, or silent from
// the start, so the idle timeout is not what closes them.
func (o *options) group(name, as string, n int, interval time.Duration) load.Spec {
	s := load.Spec{}
	s.GroupSetup = result.GroupSetup{Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size}
	if load.Echoes(as) {
		s.Timeout = o.targetTimeout()
	}
	return s
}

// limitServer adds flags to those of the launched server, unless it has no reaper. They come first,
// so that --server-args wins.
func (o *options) limitServer(format string, args ...any) {
	if o.launch && !o.Bare {
		o.serverArgs = fmt.Sprintf(format, args...) + " " + o.serverArgs
	}
}
