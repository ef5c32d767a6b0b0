package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
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
	use: "hold", args: noArgs, short: "Open connections, send heartbeats, stop sending",
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
	use: "storm", args: noArgs, short: "Stop sending on thousands of connections at once, while others are served",
	long: `Stop sending on thousands of connections at once, so that all time out together, while others send messages. The
latency of the others before, during and after the storm shows what users notice.`,
	connections: 10_000, heartbeat: 3 * time.Second, timeout: 10 * time.Second,
	flags: func(o *options, f *pflag.FlagSet) { o.addLiving(f, 200, 20*time.Millisecond) },
	groups: func(o *options, p *problems) []load.Spec {
		return []load.Spec{o.livingGroup(p), o.group(silent, load.Heartbeat, o.Connections, o.heartbeat)}
	},
	script: func(r *run) {
		gone := func(now result.Counts) bool { return openOf(now, silent) == 0 }
		timeout := r.opt.targetTimeout()
		_ = r.openAll() &&
			r.hold("before", r.opt.calm) &&
			r.phase("silence", timeout-timeout/20, gone, load.Command{LastMessage: silent}) &&
			r.phase(during, timeout/20+2*r.opt.Tick+closeGrace, gone) &&
			r.phase("after", r.opt.calm, nil)
	},
}

var churn = scenario{
	use: "churn", args: noArgs, short: "Open and close connections at a rate",
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
		on := r.phase("churn", r.opt.length, isRefused)
		r.reportChurn()
		_ = on && r.phase("after", 2*time.Second, nil, load.Command{Silence: "churn"})
	},
}

// reportChurn notes the rate of connections, or fails if no connection was opened.
func (r *run) reportChurn() {
	report, _ := r.clients.Report()
	all := report.Total()
	if all.Opened == 0 && all.OpenFailed > 0 {
		r.fail("no server can be reached at %s: %s", strings.Join(r.opt.Targets, ", "), report.Failures.Reasons()[0])
		return
	}
	if took := r.res.Length("churn").Seconds(); took > 0 {
		r.note("%s connections per second were opened, used and closed; the requested rate is %s",
			format.Count(uint64(float64(all.Answers)/took)), format.Count(uint64(r.opt.Rate)))
	}
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
func (o *options) group(name string, as load.Behaviour, n int, interval time.Duration) load.Spec {
	s := load.Spec{Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size}
	if as.Echoes() {
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
