package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

// An attack describes the attackers.
type attack struct {
	name, help string
	behaviour  load.Behaviour
	interval   time.Duration
	rate       float64 // connections per second; 0 for the default
	serverArgs string  // limits of a launched server
}

var attacks = []attack{
	{"slowloris", "send a message byte by byte and never finish it", load.Trickle, time.Second, 0, "--min-rate 16 --min-rate-window 5s"},
	{"slow-read", "request as much as they can and read it slowly", load.SlowReader, 100 * time.Millisecond, 0,
		"--output-limit 1048576 --write-stall-timeout 10s"},
	{"zero-window", "request as much as they can and read nothing", load.ZeroWindow, 0, 0,
		"--output-limit 1048576 --write-stall-timeout 5s"},
	{"flood", "connect and close as fast as they can", load.Churn, 0, 50_000, ""},
	{"idle-flood", "connect, send a message and stop sending", load.Silent, 0, 0, ""},
	{"one-byte", "send each byte in a segment of its own", load.OneByte, 10 * time.Millisecond, 0, ""},
	{"silent", "connect and send nothing", load.Mute, 0, 0, "--first-byte-timeout 5s"},
}

func newAttack() *cobra.Command {
	var help, names []string
	for _, a := range attacks {
		help = append(help, fmt.Sprintf("%-16s %s", a.name, a.help))
		names = append(names, a.name)
	}
	return scenario{
		use: "attack NAME", short: "Attack the server while others are served: " + strings.Join(names, ", "),
		long: "Attack the server while other connections are served, and measure their latency. What attackers do:\n\n  " +
			strings.Join(help, "\n  "),
		args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(names, args[0]) {
				return exitError{fmt.Errorf("attack %q: name one of %s", strings.Join(args, " "), strings.Join(names, ", ")), exitUsage}
			}
			return nil
		},
		connections: 1000, heartbeat: 3 * time.Second, timeout: 10 * time.Second,
		flags: func(o *options, f *pflag.FlagSet) {
			f.DurationVar(&o.length, "for", 20*time.Second, "duration of the attack")
			o.addLiving(f, 100, 50*time.Millisecond)
		},
		groups: func(o *options, p *problems) []load.Spec {
			groups := []load.Spec{o.livingGroup(p), o.attackers(attacks[slices.Index(names, o.cmd.Flags().Arg(0))])}
			o.checkLength(p)
			return groups
		},
		script: func(r *run) {
			if !r.openAll() || !r.hold("before", r.opt.calm) || !r.phase(during, r.opt.length, nil, load.Command{Open: attackers}) {
				return
			}
			report, _ := r.clients.Report()
			r.note("%d attackers are still connected at the end of the attack", openOf(report, attackers))
			_ = r.phase("after", r.opt.calm, nil, load.Command{Silence: attackers})
		},
	}.command()
}

// attackers returns the group of an attack. Its rate and its limits of the server give way to
// --rate and --server-args.
func (o *options) attackers(a attack) load.Spec {
	if a.rate > 0 && !o.cmd.Flags().Changed("rate") {
		o.Rate = a.rate
	}
	o.limitServer("%s", a.serverArgs)
	s := o.group(attackers, a.behaviour, o.Connections, a.interval)
	s.Deferred = true
	if a.behaviour != load.Silent {
		s.Timeout = 0
	}
	return s
}
