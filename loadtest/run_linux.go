package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/processes"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

const (
	// opening is the phase in which the connections are opened.
	opening = "open"
	// phasePoll is the interval at which a phase checks whether it is over.
	phasePoll = 50 * time.Millisecond
	// closeGrace is how late the target may close dead connections before the run gives up.
	closeGrace = 10 * time.Second
	// exitTimeout limits the time that processes take to end.
	exitTimeout = 30 * time.Second
)

// A run is one load test, from the start of its processes to its report.
type run struct {
	ctx      context.Context
	opt      *options
	res      *result.Result
	clients  processes.Clients
	servers  processes.Servers
	specs    []load.Spec
	now      result.Counts // the latest
	sampled  time.Time
	failed   bool          // it cannot continue
	baseline result.Sample // before the first connection
	finished func()        // adds to the result when its counts are final; may be nil
}

// perform runs a load test with some groups of connections. The script controls its phases.
func (o *options) perform(specs []load.Spec, script func(r *run)) error {
	r := &run{ctx: o.cmd.Context(), opt: o, specs: specs}
	r.res = &result.Result{
		Schema: result.Schema, Verb: strings.Join(append([]string{o.cmd.Name()}, o.cmd.Flags().Args()...), " "),
		Command: "loadtest " + strings.Join(os.Args[1:], " "), Machines: []result.Machine{machine.Describe()},
	}
	if err := r.prepare(); err != nil {
		r.clients.Kill()
		_, _ = r.servers.Stop(exitTimeout)
		if r.ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	script(r)
	return r.finish()
}

// prepare starts the processes and sends them the plan.
func (r *run) prepare() error {
	o, total, apart := r.opt, 0, 0
	for _, s := range r.specs {
		total += s.Connections
		if s.Apart {
			apart++
			r.note("the group %s has a client process of its own", s.Name)
		}
	}
	r.res.Setup = o.setup(total, apart)
	setup := &r.res.Setup
	if checks := machine.Check(*setup); checks.Worst() == machine.Cannot {
		return printLimits(o.cmd, checks)
	}
	if o.launch {
		if err := r.servers.Start(r.ctx, r.launchConfig(setup.Servers)); err != nil {
			return exitError{err, exitCannot}
		}
		o.Targets, setup.Targets = r.servers.Targets, r.servers.Targets
	}
	if err := r.clients.Start(setup.Clients, apart > 0); err != nil {
		return exitError{err, exitCannot}
	}
	if err := r.awaitBegin(); err != nil {
		return err
	}
	r.res.Began = time.Now()
	r.baseline = r.measure()
	r.describe()
	return r.clients.Begin(load.Plan{Setup: *setup, Specs: r.specs})
}

// setup returns the setup of some connections: it has as many processes as their descriptors
// require, and clients apart from them. Connections to 127.0.0.0/8, where launched servers listen,
// come from there.
func (o *options) setup(connections, apart int) result.Setup {
	usable := machine.Descriptors() - 128 // the others are not connections
	processes := func(each int) int { return (connections-1)/max(each, 1) + 1 }
	isRemote := func(target string) bool { return !strings.HasPrefix(target, "127.") }
	switch {
	case o.Source == "none":
		o.Source = ""
	case o.Source == "" && (o.launch || len(o.Targets) > 0 && !slices.ContainsFunc(o.Targets, isRemote)):
		o.Source = "127.0.0.0/8"
	}
	switch {
	case o.Source == "":
		o.Sources = 1
	case o.Sources == 0:
		o.Sources = max(1, connections/1000)
	}
	s := o.Setup
	s.Connections, s.Clients = connections, max(processes(usable), s.Clients)+apart
	if o.launch {
		// A server starts to shed at 15/16 of its limit, and the kernel does not spread connections
		// evenly over servers.
		s.Servers = max(processes(usable*14/16), s.Servers)
	}
	return s
}

// printLimits prints the limits of this machine, and returns an error if one of them is too low.
func printLimits(cmd *cobra.Command, checks machine.Limits) error {
	checks.Print(cmd.OutOrStdout())
	if checks.Worst() == machine.Cannot {
		return exitError{errors.New("this machine cannot hold that many connections"), exitCannot}
	}
	return nil
}

// awaitBegin waits until --begin-at. It may begin a second later.
func (r *run) awaitBegin() error {
	if r.opt.beginAt == 0 {
		return nil
	}
	left := time.Until(time.Unix(r.opt.beginAt, 0))
	if left < -time.Second {
		return exitError{fmt.Errorf("%v later than --begin-at: the other machines have already begun", -left.Round(time.Second)), exitCannot}
	}
	fmt.Fprintf(r.opt.cmd.ErrOrStderr(), "waiting for --begin-at, %v\n", left.Round(time.Second))
	select {
	case <-time.After(left):
	case <-r.ctx.Done():
	}
	return r.ctx.Err()
}

// launchConfig returns how to launch the servers.
func (r *run) launchConfig(servers int) processes.Launch {
	o := r.opt
	args := []string{"--loops", fmt.Sprint(max(1, runtime.NumCPU()/servers))}
	if o.Bare {
		args = append(args, "--bare")
	} else {
		// Several verbs silence all clients at once. The server would take that for an outage of
		// its own network and postpone reaping, and this client would measure the outage grace
		// instead of the lateness. --server-args can set another grace.
		args = append(args, "--read-timeout", o.Timeout.String(), "--tick", o.Tick.String(), "--outage-grace", "-1s")
	}
	return processes.Launch{
		Count: servers, Binary: o.binary, PortsEach: o.portsEach, Args: append(args, strings.Fields(o.serverArgs)...),
	}
}

// describe completes the setup of the result, and adds remarks on it.
func (r *run) describe() {
	o, s := r.opt, &r.res.Setup
	s.Flags = map[string]string{}
	o.cmd.Flags().VisitAll(func(f *pflag.Flag) { s.Flags[f.Name] = f.Value.String() })
	for _, spec := range r.specs {
		s.Groups = append(s.Groups, spec.GroupSetup)
	}
	if !o.launch || o.Bare {
		s.Tick = 0
	}
	if s.Clients > 1 || s.Servers > 1 {
		text := ""
		if s.Servers > 0 {
			text = fmt.Sprintf(" and %d server processes", s.Servers)
		}
		r.note("a process may have %d descriptors: %d client processes hold the connections%s", machine.Descriptors(), s.Clients, text)
	}
	if s.Servers > 0 {
		r.note("clients and servers share this machine: latency, CPU and kernel memory include both")
	}
}

// finish ends the processes and writes the report.
func (r *run) finish() error {
	r.res.Interrupted = r.ctx.Err() != nil
	if out := r.opt.cmd.ErrOrStderr(); terminalWidth(out) > 0 {
		fmt.Fprint(out, eraseLine)
	}
	drain := r.opt.Patience
	if r.res.Interrupted {
		drain = 0
	}
	last, err := r.clients.Finish(drain, exitTimeout)
	if err != nil {
		r.res.Faults = append(r.res.Faults, err.Error())
	}
	said, err := r.servers.Stop(exitTimeout)
	if err != nil && len(r.res.Errors) == 0 { // otherwise it has ended before
		r.res.Errors = append(r.res.Errors, err.Error())
	}
	const few = 4 // lines
	for _, line := range said[:min(few, len(said))] {
		r.note("output of a server: %s", line)
	}
	if len(said) > few {
		r.note("output of servers: %d more lines", len(said)-few)
	}
	r.res.Counts.Add(&last)
	for i := range r.res.Groups {
		r.res.Groups[i].Hostile = r.res.Groups[i].Name == attackers
	}
	r.res.Took = time.Since(r.res.Began)
	r.checkTarget()
	if r.finished != nil {
		r.finished()
	}
	return r.opt.report(r.opt.cmd, r.res)
}

func newDoctor() *cobra.Command {
	o := options{Setup: result.Setup{Connections: 100_000}}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the limits of this machine for a number of connections",
		Long: "Check whether this machine can hold a number of connections, and name a fix for each limit that is too low. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Connections < 1 {
				return exitError{fmt.Errorf("--connections is %d: set at least 1", o.Connections), exitUsage}
			}
			return printLimits(cmd, machine.Check(o.setup(o.Connections, 0)))
		},
	}
	cmd.Flags().VarP((*count)(&o.Connections), "connections", "c", "number of connections, such as 500, 100k or 1m")
	cmd.Flags().BoolVar(&o.launch, "launch", true, "the servers run on this machine too")
	return cmd
}
