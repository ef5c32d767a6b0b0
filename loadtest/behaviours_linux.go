package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A share is a part of a mix.
type share struct {
	name, help string
	percent    float64 // by default
	behaviour  string
	interval   time.Duration
}

// shares returns the parts that a mix can have.
func (o *options) shares() []share {
	return []share{
		{"active", "a message every second", 20, load.Heartbeat, min(time.Second, o.heartbeat)},
		{beating, "a message every --heartbeat", 50, load.Heartbeat, o.heartbeat},
		{silent, "one message, then nothing", 15, load.Silent, 0},
		{"trickle", "a byte every second, never a complete message", 5, load.Trickle, time.Second},
		{"slow-reader", "sends as much as it can, reads little", 5, load.SlowReader, 100 * time.Millisecond},
		{"half-open", "heartbeats, then vanishes without a FIN or RST", 5, load.HalfOpen, o.heartbeat},
	}
}

func newMix() *cobra.Command {
	var usual, help []string
	for _, s := range new(options).shares() {
		usual = append(usual, fmt.Sprintf("%s=%v", s.name, s.percent))
		help = append(help, s.name+": "+s.help)
	}
	return scenario{
		use: "mix", short: "Run connections of several behaviours side by side",
		long: "Run connections of several behaviours side by side:\n\n  " + strings.Join(help, "\n  ") +
			"\n\nThe launched server has limits for slow peers and for pending output.",
		connections: 1000, heartbeat: 3 * time.Second, timeout: 10 * time.Second,
		flags: func(o *options, f *pflag.FlagSet) {
			f.StringVar(&o.mix, "mix", strings.Join(usual, ","), "shares in percent")
			f.DurationVar(&o.length, "for", 30*time.Second, "duration of the mix")
		},
		groups: func(o *options, p *problems) []load.Spec {
			groups, err := o.mixGroups()
			p.add(err)
			o.checkLength(p)
			o.limitServer("--min-rate 16 --min-rate-window %v --write-stall-timeout %[1]v --output-limit 1048576", o.Timeout)
			return groups
		},
		script: (*run).mix,
	}.command()
}

// mixGroups returns the groups of --mix, such as active=20,heartbeat=80.
func (o *options) mixGroups() (groups []load.Spec, err error) {
	shares, given, sum := o.shares(), 0, 0.0
	for part := range strings.SplitSeq(o.mix, ",") {
		name, value, _ := strings.Cut(part, "=")
		percent, err := strconv.ParseFloat(value, 64)
		i := slices.IndexFunc(shares, func(s share) bool { return s.name == name })
		if err != nil || i < 0 || !(percent >= 0) {
			return nil, fmt.Errorf("--mix: %q is not a share, such as heartbeat=50", part)
		}
		sum += percent
		n := int(float64(o.Connections)*sum/100+0.5) - given // so all add up to --connections
		given += n
		if n > 0 {
			groups = append(groups, o.group(name, shares[i].behaviour, n, shares[i].interval))
		}
		shares = slices.Delete(shares, i, i+1) // each can be named once
	}
	if sum < 99.99 || sum > 100.01 {
		return nil, fmt.Errorf("--mix: the sum of the shares is %v percent, not 100", sum)
	}
	return groups, nil
}

// mix runs a mix, and compares the connections that the target and this client hold at the end.
func (r *run) mix() {
	vanished := r.opt.length - r.opt.length/3
	if !r.openAll() || !r.hold("mix", r.opt.length/3) {
		return
	}
	_ = r.phase("vanished", vanished, nil, load.Command{Vanish: "half-open"})
	if !r.opt.launch {
		return
	}
	open, held := r.now.Total().Open, uint64(0)
	for _, t := range r.opt.Targets {
		port := netip.MustParseAddrPort(t).Port()
		n, err := machine.TargetSockets(int(port))
		if err != nil {
			r.res.Faults = append(r.res.Faults, fmt.Sprintf("port %d: the connections of the target are not known: %v", port, err))
			return
		}
		r.note("port %d: at the end the target has %d connections, this client %d", port, n, open)
		held += uint64(n)
	}
	left := held - min(open, held) // vanished connections that the target still has
	r.finished = func() {
		for i := range r.res.Groups { // this client cannot see the end of a connection that it has left
			g := &r.res.Groups[i]
			had := min(left, g.Vanished)
			g.Reaped += g.Vanished - had
			if vanished > r.opt.Timeout+result.MostLate(r.opt.Timeout) {
				g.Kept += had
			}
		}
	}
}

// An attack describes the attackers.
type attack struct {
	name, help string
	behaviour  string
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
				return fmt.Errorf("attack %q: name one of %s", strings.Join(args, " "), strings.Join(names, ", "))
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
			r.note("%d attackers are still connected at the end of the attack", r.openOf(attackers))
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
