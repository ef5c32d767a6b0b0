package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
)

// A share is how many percent of the connections behave in some way.
type share struct {
	name    string
	percent float64
}

// A kind is a name in a mix: what it means, how many percent are usual, and what such connections do.
type kind struct {
	name, help string
	usual      float64
	spec       func(o *options, n int) load.Spec
}

var kinds = []kind{
	{"active", "a message every second", 20, func(o *options, n int) load.Spec {
		return o.heartbeats("active", n, min(time.Second, o.heartbeat))
	}},
	{"heartbeat", "a message every --heartbeat", 50, func(o *options, n int) load.Spec {
		return o.heartbeats("heartbeat", n, o.heartbeat)
	}},
	{silent, "a message, and nothing after it", 15, func(o *options, n int) load.Spec {
		return o.behaving(silent, load.Silent, n, 0)
	}},
	{"trickle", "a byte every second, never a whole message", 5, func(o *options, n int) load.Spec {
		s := o.behaving("trickle", load.Trickle, n, time.Second)
		s.Timeout = 0 // it is never silent
		return s
	}},
	{"slow-reader", "sends all it can, and reads little", 5, func(o *options, n int) load.Spec {
		s := o.behaving("slow-reader", load.SlowReader, n, 100*time.Millisecond)
		s.Timeout = 0
		return s
	}},
	{"half-open", "lives, and vanishes without a word", 5, func(o *options, n int) load.Spec {
		s := o.heartbeats("half-open", n, o.heartbeat)
		s.Behaviour = load.HalfOpen
		return s
	}},
}

// behaving returns connections that behave in some way, with messages of the usual size.
func (o *options) behaving(name string, as load.Behaviour, n int, interval time.Duration) load.Spec {
	return load.Spec{Name: name, Behaviour: as, Connections: n, Interval: interval, Jitter: o.jitter, Size: o.size, Timeout: o.reaps()}
}

// parseMix reads shares such as active=20,heartbeat=80.
func parseMix(text string) (shares []share, err error) {
	sum := 0.0
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		percent, err := strconv.ParseFloat(value, 64)
		known := slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name })
		again := slices.ContainsFunc(shares, func(s share) bool { return s.name == name })
		if err != nil || !known || again || percent < 0 {
			return nil, fmt.Errorf("--mix: %q is no share, such as heartbeat=50", part)
		}
		shares = append(shares, share{name, percent})
		sum += percent
	}
	if sum < 99.99 || sum > 100.01 {
		return nil, fmt.Errorf("--mix: the shares are %v percent together", sum)
	}
	return shares, nil
}

func newMix() *cobra.Command {
	var o options
	var length time.Duration
	var usual, help []string
	for _, k := range kinds {
		usual = append(usual, fmt.Sprintf("%s=%v", k.name, k.usual))
		help = append(help, k.name+": "+k.help)
	}
	mix := strings.Join(usual, ",")
	cmd := &cobra.Command{
		Use: "mix", Short: "Let connections of all kinds live and die side by side", Args: noArgs,
		Long: "Let connections of all kinds live and die side by side:\n\n  " + strings.Join(help, "\n  ") +
			"\n\nThe server that is launched has limits for slow peers and for output, beside its timeout.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			shares, err := parseMix(mix)
			if err != nil {
				return usageError{err}
			}
			if o.launch && !o.bare {
				o.serverArgs = fmt.Sprintf("--min-rate 16 --min-rate-window %v --write-stall-timeout %[1]v --output-limit 1048576 %s",
					o.timeout, o.serverArgs)
			}
			return o.perform(cmd, "mix", o.mix(shares), func(r *run) { r.mix(length) })
		},
	}
	o.add(cmd, 1000, 3*time.Second, 10*time.Second)
	cmd.Flags().StringVar(&mix, "mix", mix, "shares in percent")
	cmd.Flags().DurationVar(&length, "for", 30*time.Second, "how long it goes on")
	return cmd
}

// mix returns the connections of a mix.
func (o *options) mix(shares []share) (specs []load.Spec) {
	given, percent := 0, 0.0
	for _, s := range shares {
		percent += s.percent
		n := int(float64(o.connections)*percent/100+0.5) - given
		given += n
		if i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == s.name }); n > 0 {
			specs = append(specs, kinds[i].spec(o, n))
		}
	}
	return specs
}

// mix lets a mix live, and looks what the target still has of those that have vanished.
func (r *run) mix(length time.Duration) {
	if !r.open() || !r.hold("mix", length/3) {
		return
	}
	_ = r.phase("vanished", length-length/3, nil, load.Command{Vanish: "half-open"})
	report, _ := r.crew.Report()
	for _, t := range r.opt.targets {
		addr, err := netip.ParseAddrPort(t)
		if err != nil || r.servers == nil {
			return
		}
		if n, err := machine.TargetSockets(int(addr.Port())); err == nil {
			r.res.Notes = append(r.res.Notes, fmt.Sprintf("port %d: the target has %d connections at the end, this client %d",
				addr.Port(), n, sumOf(report).Open))
		}
	}
}

func newChurn() *cobra.Command {
	var o options
	var length time.Duration
	cmd := &cobra.Command{
		Use: "churn", Short: "Open and close connections all the time", Args: noArgs,
		Long: `Open connections at a --rate, send a message over each, and close it when it is answered, by FIN and by RST in turns. As many as
-c may be on their way at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.perform(cmd, "churn", []load.Spec{o.behaving("churn", load.Churn, int(o.connections), o.heartbeat)}, func(r *run) {
				_ = r.phase("churn", length, func(now load.Report) bool {
					all := sumOf(now)
					return all.Opened == 0 && all.OpenFailed >= hopeless
				}) && r.phase("after", 2*time.Second, nil, load.Command{Silence: "churn"})
				r.judgeChurn()
			})
		},
	}
	o.add(cmd, 1000, time.Second, time.Minute)
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "how long it goes on")
	return cmd
}

// judgeChurn tells how many were opened in a second, or that nobody is there.
func (r *run) judgeChurn() {
	report, _ := r.crew.Report()
	all := sumOf(report)
	if all.Opened == 0 && all.OpenFailed > 0 {
		r.fail("nobody can be reached at %s: %s", strings.Join(r.opt.targets, ", "), report.Failures.Reasons()[0])
		return
	}
	for _, p := range r.res.Phases {
		if p.Name == "churn" {
			r.res.Notes = append(r.res.Notes, fmt.Sprintf("%s connections a second were opened, used and closed, of %s that were asked for",
				grouped(uint64(float64(all.Answers)/(p.To-p.From).Seconds())), grouped(uint64(r.opt.rate))))
		}
	}
}

// An attack is what attackers do.
type attack struct {
	name, help string
	behaviour  load.Behaviour
	interval   time.Duration
	rate       float64 // 0 for the usual
	serverArgs string  // limits of a server that is launched
}

var attacks = []attack{
	{"slowloris", "send a message byte by byte, and never its end", load.Trickle, time.Second, 0, "--min-rate 16 --min-rate-window 5s"},
	{"slow-read", "ask for all they can get, and read it slowly", load.SlowReader, 100 * time.Millisecond, 0,
		"--output-limit 1048576 --write-stall-timeout 10s"},
	{"zero-window", "ask for all they can get, and read nothing", load.ZeroWindow, 0, 0,
		"--output-limit 1048576 --write-stall-timeout 5s"},
	{"flood", "connect and close as fast as they can", load.Churn, 0, 50_000, ""},
	{"idle-flood", "connect, send a message, and are silent", load.Silent, 0, 0, ""},
	{"one-byte", "send each byte in a segment of its own", load.OneByte, 10 * time.Millisecond, 0, ""},
	{"handshake-stall", "connect and say nothing", load.Mute, 0, 0, "--first-byte-timeout 5s"},
}

func newAttack() *cobra.Command {
	var o options
	var length, calm, every time.Duration
	var livings count = 100
	var help, names []string
	for _, a := range attacks {
		help = append(help, fmt.Sprintf("%-16s they %s", a.name, a.help))
		names = append(names, a.name)
	}
	cmd := &cobra.Command{
		Use: "attack NAME", Short: "Attack the server, while others are served: " + strings.Join(names, ", "),
		Long: "Attack the server, while others are served, which measure what it costs them. Attackers:\n\n  " + strings.Join(help, "\n  "),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(names, args[0]) {
				return usageError{fmt.Errorf("%q: name an attack: %s", strings.Join(args, " "), strings.Join(names, ", "))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if err := o.checkOthers(int(livings), every, calm); err != nil {
				return err
			}
			if length <= 0 {
				return usageError{fmt.Errorf("--for is %v: set a positive duration", length)}
			}
			a := attacks[slices.Index(names, args[0])]
			return o.attack(cmd, a, int(livings), every, length, calm)
		},
	}
	o.add(cmd, 1000, 3*time.Second, 10*time.Second)
	cmd.Flags().Var(&livings, "living", "how many others are served meanwhile")
	cmd.Flags().DurationVar(&every, "every", 50*time.Millisecond, "how often each of them sends a message")
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "how long the attack goes on")
	cmd.Flags().DurationVar(&calm, "calm", 5*time.Second, "for how long is measured before and after")
	return cmd
}

func (o *options) attack(cmd *cobra.Command, a attack, livings int, every, length, calm time.Duration) error {
	if a.rate > 0 && !cmd.Flags().Changed("rate") {
		o.rate = a.rate
	}
	if o.launch && !o.bare {
		o.serverArgs = a.serverArgs + " " + o.serverArgs
	}
	const attackers = "attackers"
	s := o.behaving(attackers, a.behaviour, int(o.connections), a.interval)
	s.Waits = true
	if a.behaviour != load.Silent {
		s.Timeout = 0
	}
	return o.perform(cmd, "attack "+a.name, []load.Spec{o.heartbeats(living, livings, every), s}, func(r *run) {
		if !r.open() || !r.hold("before", calm) || !r.phase(during, length, nil, load.Command{Open: attackers}) {
			return
		}
		report, _ := r.crew.Report()
		r.res.Notes = append(r.res.Notes,
			fmt.Sprintf("%d attackers are still connected when the attack is over", openOf(report, attackers)))
		_ = r.phase("after", calm, nil, load.Command{Silence: attackers})
	})
}
