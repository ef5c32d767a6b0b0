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
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A mixKind is a name in --mix, with its help, its share in percent, and its connections.
type mixKind struct {
	name, help string
	percent    float64
	spec       func(o *options, n int) load.Spec
}

var mixKinds = []mixKind{
	{"active", "a message every second", 20, func(o *options, n int) load.Spec {
		return o.heartbeats("active", n, min(time.Second, o.heartbeat))
	}},
	{beating, "a message every --heartbeat", 50, func(o *options, n int) load.Spec {
		return o.heartbeats(beating, n, o.heartbeat)
	}},
	{silent, "one message, then nothing", 15, func(o *options, n int) load.Spec {
		return o.behaving(silent, load.Silent, n, 0)
	}},
	{"trickle", "a byte every second, never a complete message", 5, func(o *options, n int) load.Spec {
		return o.behaving("trickle", load.Trickle, n, time.Second)
	}},
	{"slow-reader", "sends as much as it can, reads little", 5, func(o *options, n int) load.Spec {
		return o.behaving("slow-reader", load.SlowReader, n, 100*time.Millisecond)
	}},
	{"half-open", "heartbeats, then vanishes without a FIN or RST", 5, func(o *options, n int) load.Spec {
		return o.behaving("half-open", load.HalfOpen, n, o.heartbeat)
	}},
}

// parseMix parses shares such as active=20,heartbeat=80.
func parseMix(text string) (shares []mixKind, err error) {
	sum := 0.0
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		percent, err := strconv.ParseFloat(value, 64)
		named := func(k mixKind) bool { return k.name == name }
		i := slices.IndexFunc(mixKinds, named)
		if err != nil || i < 0 || slices.ContainsFunc(shares, named) || !(percent >= 0) {
			return nil, fmt.Errorf("--mix: %q is not a share, such as heartbeat=50", part)
		}
		kind := mixKinds[i]
		kind.percent = percent
		shares = append(shares, kind)
		sum += percent
	}
	if sum < 99.99 || sum > 100.01 {
		return nil, fmt.Errorf("--mix: the sum of the shares is %v percent, not 100", sum)
	}
	return shares, nil
}

func newMix() *cobra.Command {
	var o options
	var length time.Duration
	var usual, help []string
	for _, k := range mixKinds {
		usual = append(usual, fmt.Sprintf("%s=%v", k.name, k.percent))
		help = append(help, k.name+": "+k.help)
	}
	mix := strings.Join(usual, ",")
	cmd := &cobra.Command{
		Use: "mix", Short: "Run connections of several behaviours side by side", Args: noArgs,
		Long: "Run connections of several behaviours side by side:\n\n  " + strings.Join(help, "\n  ") +
			"\n\nThe launched server has limits for slow peers and for pending output.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			shares, err := parseMix(mix)
			if err := o.check(err, checkLength(length)); err != nil {
				return err
			}
			if o.launch && !o.Bare {
				o.serverArgs = fmt.Sprintf("--min-rate 16 --min-rate-window %v --write-stall-timeout %[1]v --output-limit 1048576 %s",
					o.Timeout, o.serverArgs)
			}
			return o.perform(cmd, "mix", o.mix(shares), func(r *run) { r.mix(length) })
		},
	}
	o.add(cmd, 1000, 3*time.Second, 10*time.Second)
	cmd.Flags().StringVar(&mix, "mix", mix, "shares in percent")
	cmd.Flags().DurationVar(&length, "for", 30*time.Second, "duration of the mix")
	return cmd
}

// mix returns the groups of a mix.
func (o *options) mix(shares []mixKind) (specs []load.Spec) {
	given, percent := 0, 0.0
	for _, s := range shares {
		percent += s.percent
		n := int(float64(o.Connections)*percent/100+0.5) - given
		given += n
		if n > 0 {
			specs = append(specs, s.spec(o, n))
		}
	}
	return specs
}

// mix runs a mix, and compares the connections that the target and this client hold at the end.
func (r *run) mix(length time.Duration) {
	if !r.openAll() || !r.hold("mix", length/3) {
		return
	}
	_ = r.phase("vanished", length-length/3, nil, load.Command{Vanish: "half-open"})
	if !r.opt.launch {
		return
	}
	report, _ := r.clients.Report()
	held := uint64(0)
	for _, t := range r.opt.Targets {
		port := netip.MustParseAddrPort(t).Port()
		n, err := machine.TargetSockets(int(port))
		if err != nil {
			r.res.Faults = append(r.res.Faults, fmt.Sprintf("port %d: the connections of the target are not known: %v", port, err))
			return
		}
		r.note("port %d: at the end the target has %d connections, this client %d", port, n, report.Total().Open)
		held += uint64(n)
	}
	sum := report.Total()
	left := held - min(sum.Open, held) // vanished connections that the target still has
	r.finished = func() {
		for i := range r.res.Groups { // this client cannot see the end of a connection that it has left
			g := &r.res.Groups[i]
			had := min(left, g.Vanished)
			g.Reaped += g.Vanished - had
			if length-length/3 > r.opt.Timeout+result.MostLate(r.opt.Timeout) {
				g.Kept += had
			}
		}
	}
}
