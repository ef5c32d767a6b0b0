package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
	var o options
	var others others
	var length time.Duration
	var help, names []string
	for _, a := range attacks {
		help = append(help, fmt.Sprintf("%-16s %s", a.name, a.help))
		names = append(names, a.name)
	}
	cmd := &cobra.Command{
		Use: "attack NAME", Short: "Attack the server while others are served: " + strings.Join(names, ", "),
		Long: "Attack the server while other connections are served, and measure their latency. What attackers do:\n\n  " +
			strings.Join(help, "\n  "),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(names, args[0]) {
				return usageError{fmt.Errorf("attack %q: name one of %s", strings.Join(args, " "), strings.Join(names, ", "))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(o.checkOthers(others), checkLength(length)); err != nil {
				return err
			}
			return o.attack(cmd, attacks[slices.Index(names, args[0])], others, length)
		},
	}
	o.add(cmd, 1000, 3*time.Second, 10*time.Second)
	cmd.Flags().DurationVar(&length, "for", 20*time.Second, "duration of the attack")
	others.add(cmd, 100, 50*time.Millisecond)
	return cmd
}

func (o *options) attack(cmd *cobra.Command, a attack, others others, length time.Duration) error {
	if a.rate > 0 && !cmd.Flags().Changed("rate") {
		o.Rate = a.rate
	}
	if o.launch && !o.Bare {
		o.serverArgs = a.serverArgs + " " + o.serverArgs
	}
	s := o.behaving(attackers, a.behaviour, o.Connections, a.interval)
	s.Deferred = true
	if a.behaviour != load.Silent {
		s.Timeout = 0
	}
	return o.perform(cmd, "attack "+a.name, []load.Spec{o.others(others), s}, func(r *run) {
		if !r.openAll() || !r.hold("before", others.calm) || !r.phase(during, length, nil, load.Command{Open: attackers}) {
			return
		}
		report, _ := r.clients.Report()
		r.note("%d attackers are still connected at the end of the attack", openOf(report, attackers))
		_ = r.phase("after", others.calm, nil, load.Command{Silence: attackers})
	})
}
