package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
)

var echo = scenario{
	use: "echo", short: "Send messages one after the other and count the answers",
	long: `Send messages one after the other on each connection, and measure the rate and latency of the answers. With --send-rate
messages are sent at a rate, whether or not earlier ones are answered: only then does the latency show a target that stands
still, because each message counts from its intended time (wrk2 calls it corrected for coordinated omission). --pair measures
a second target in turn with the first, round by round: the ratio within a round is more precise than two separate runs.
Each turn has files of its own: --out x.json writes x-1a.json and x-1b.json for the first round.`,
	connections: 100, heartbeat: time.Second, timeout: time.Minute,
	flags: func(o *options, f *pflag.FlagSet) {
		f.DurationVar(&o.length, "for", 10*time.Second, "duration, with --pair of each round")
		f.StringVar(&o.pair, "pair", "", "`host:port` of a second target")
		f.Float64Var(&o.sendRate, "send-rate", 0, "messages per second of all connections together; 0 sends each after the last answer")
		f.IntVar(&o.rounds, "rounds", 5, "number of rounds with --pair")
	},
	groups: func(o *options, p *problems) []load.Spec {
		group := o.echoGroup(p)
		p.require(o.length >= time.Second && o.rounds >= 1, "--for and --rounds: set at least 1s and 1")
		if o.pair != "" {
			p.require(!o.launch, "--pair needs a --target to compare with")
			p.resolve("--pair "+o.pair, &o.pair)
		}
		return []load.Spec{group}
	},
	script: func(r *run) {
		if !r.openAll() {
			return
		}
		r.hold("echo", r.opt.length)
		r.finished = func() {
			if of := r.res.Total().Exchanges["echo"]; of != nil {
				r.opt.answerRate = float64(of.Arrived) / r.res.Length("echo").Seconds()
			}
			if r.opt.sendRate == 0 {
				r.note("each message waits for the last answer: while the target stands still none is sent, and the latency " +
					"does not show those that would have waited; --send-rate does")
			}
			r.note("%s answers per second", format.Count(uint64(r.opt.answerRate)))
		}
	},
}

// echoGroup returns connections that send a message after each answer, or at --send-rate together.
func (o *options) echoGroup(p *problems) load.Spec {
	if o.sendRate == 0 {
		return o.group(living, load.PingPong, o.Connections, 0)
	}
	seconds := float64(o.Connections) / o.sendRate
	interval := time.Duration(min(seconds, 1e9) * float64(time.Second))
	isValid := o.sendRate > 0 && interval >= time.Millisecond
	p.require(isValid, "--send-rate is %v: set a positive rate, and at most 1000 per connection", o.sendRate)
	p.require(!isValid || !o.exceedsTimeout(interval),
		"--send-rate of %v is too low for %d connections and a --timeout of %v", o.sendRate, o.Connections, o.Timeout)
	return o.group(living, load.Heartbeat, o.Connections, interval)
}

// nameOfTurn returns the name of a file for one turn: x.json becomes x-1a.json for the first target
// of the first round. Names of devices stay.
func nameOfTurn(name string, round, target int) string {
	if name == "" || name == toStdout || strings.HasPrefix(name, "/dev/") {
		return name
	}
	ext := filepath.Ext(name)
	return fmt.Sprintf("%s-%d%c%s", strings.TrimSuffix(name, ext), round+1, 'a'+target, ext)
}

// inTurns compares the target with the one of --pair.
func (o *options) inTurns(groups []load.Spec, script func(*run)) error {
	targets, given := []string{o.Targets[0], o.pair}, *o // a run fills in what its flags leave open
	var ratios []float64
	for round := range o.rounds {
		var rates [2]float64
		for turn := range targets {
			i := turn ^ round&1 // the order alternates
			*o = given
			o.Targets = targets[i : i+1]
			o.out, o.html = nameOfTurn(o.out, round, i), nameOfTurn(o.html, round, i)
			if err := o.perform(groups, script); err != nil {
				return err
			}
			rates[i] = o.answerRate
			given.beginAt = 0 // of the first turn
		}
		ratios = append(ratios, rates[1]/rates[0])
	}
	slices.Sort(ratios)
	median := (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	fmt.Fprintf(o.cmd.OutOrStdout(), "\n%s has %.3f times the answers of %s (median of %d rounds, %.3f to %.3f)\n",
		targets[1], median, targets[0], o.rounds, ratios[0], ratios[len(ratios)-1])
	return nil
}
