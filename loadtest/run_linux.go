package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/limits"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/processes"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

const (
	// opening is the phase in which the connections are opened.
	opening = "open"
	// reservedDescriptors is how many descriptors a process keeps for what is no connection.
	reservedDescriptors = 128
	// look is how often is looked whether a phase is over, and sampleEvery how often how things stand is kept.
	phasePoll   = 50 * time.Millisecond
	sampleEvery = time.Second
	// closeGrace is for how long the target may be late with closing the dead before the run gives up.
	closeGrace = 10 * time.Second
	// notedDelay is how late the client may be without a word in the report.
	notedDelay = 200 * time.Millisecond
	// exitTimeout is how long processes may take to end.
	exitTimeout = 30 * time.Second
)

// A run is one load test, from the start of its processes to its report.
type run struct {
	ctx         context.Context
	opt         *options
	out         io.Writer
	progress    *progress
	res         *result.Result
	clients     *processes.Clients
	servers     *processes.Servers
	specs       []load.Spec
	began       time.Time
	sampled     time.Time
	failed      bool          // it cannot go on
	clientDelay time.Duration // by how much the client was late at most
	baseline    measurement
	whileHeld   measurement
}

// perform runs a load test of some groups of connections, to which happens what a script says.
func (o *options) perform(cmd *cobra.Command, verb string, specs []load.Spec, script func(r *run)) error {
	r := &run{
		ctx: cmd.Context(), opt: o, out: cmd.OutOrStdout(), progress: newProgress(cmd.ErrOrStderr()), began: time.Now(), specs: specs,
	}
	r.res = &result.Result{
		Schema: result.Schema, Verb: verb, Command: "loadtest " + strings.Join(os.Args[1:], " "), Began: r.began,
		Machines: []result.Machine{machine.Describe()},
	}
	if err := r.prepare(); err != nil {
		r.stop()
		if r.ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	script(r)
	return r.finish()
}

// prepare starts the processes and gives them the plan.
func (r *run) prepare() error {
	o := r.opt
	descriptors, err := machine.RaiseDescriptors()
	if err != nil {
		return err
	}
	total := 0
	for _, s := range r.specs {
		total += s.Connections
	}
	clients, servers := processCounts(total, descriptors-reservedDescriptors)
	clients, servers = max(clients, o.clients), max(servers, o.servers)
	if !o.launch {
		servers = 0
	}
	o.setSources(total)
	if err := r.checkLimits(total, clients, servers); err != nil {
		return err
	}
	if o.launch {
		if r.servers, err = processes.StartServers(r.ctx, r.launchConfig(servers)); err != nil {
			return err
		}
		o.targets = r.servers.Targets
	}
	if r.clients, err = processes.StartClients(clients); err != nil {
		return err
	}
	if err := r.awaitBegin(); err != nil {
		return err
	}
	r.baseline = r.measure(0)
	r.describe(total, clients, servers, descriptors)
	return r.clients.Begin(load.Plan{
		Targets: o.targets, Source: o.source, Sources: o.sources, Rate: o.rate, Ramp: o.ramp, Patience: o.patience, Specs: r.specs,
	})
}

// late is how much later than the others a run may begin.
const beginTolerance = time.Second

// awaitBegin waits until the time at which others begin as well.
func (r *run) awaitBegin() error {
	if r.opt.beginAt == 0 {
		return nil
	}
	left := time.Until(time.Unix(r.opt.beginAt, 0))
	if left < -beginTolerance {
		return fmt.Errorf("it is %v later than --begin-at: what is measured now is not what the others measure", -left.Round(time.Second))
	}
	fmt.Fprintf(r.progress.out, "waiting for --begin-at, %v\n", left.Round(time.Second))
	select {
	case <-time.After(left):
	case <-r.ctx.Done():
		return errInterrupted
	}
	r.began = time.Now()
	r.res.Began = r.began
	return nil
}

// examine refuses what this machine cannot do.
func (r *run) checkLimits(total, clients, servers int) error {
	checks := limits.Check(limits.Demand{
		Connections: total, Clients: clients, Servers: servers, Sources: r.opt.sources, Targets: max(len(r.opt.targets), 1),
		Loopback: r.opt.launch,
	})
	if limits.Worst(checks) == limits.Cannot {
		limits.Print(r.out, checks)
		return cannotError{errors.New("this machine cannot hold as many connections")}
	}
	return nil
}

// processes returns how many client and server processes hold some connections, if each may have so many descriptors for them. A server
// makes room for newcomers from 15/16 of its limit on, and the system does not spread connections quite evenly.
func processCounts(connections, descriptors int) (clients, servers int) {
	ceil := func(n int) int { return max(1, (connections+max(n, 1)-1)/max(n, 1)) }
	return ceil(descriptors), ceil(descriptors * 14 / 16)
}

// launch says how the servers are launched.
func (r *run) launchConfig(servers int) processes.Launch {
	o := r.opt
	args := []string{"--loops", fmt.Sprint(max(1, runtime.NumCPU()/servers))}
	if o.bare {
		args = append(args, "--bare")
	} else {
		// All clients are ours, and several verbs let all of them fall silent at the same moment. The
		// server would hold its verdicts then, because its own network may be down: this client would
		// measure that instead of how late the timeout is. --server-args can set another closeGrace.
		args = append(args, "--read-timeout", o.timeout.String(), "--tick", o.tick.String(), "--outage-closeGrace", "-1s")
	}
	return processes.Launch{
		Count: servers, Binary: o.binary, PortsEach: o.portsEach, Args: append(args, strings.Fields(o.serverArgs)...),
	}
}

// describe tells what is run, and what a reader of the report has to know about it.
func (r *run) describe(total, clients, servers, descriptors int) {
	o := r.opt
	r.res.Setup = result.Setup{Targets: o.targets, Connections: total, Clients: clients, Servers: servers, Bare: o.bare, Timeout: o.timeout}
	if o.launch && !o.bare {
		r.res.Setup.Tick = o.tick
	}
	if clients > 1 || servers > 1 {
		text := fmt.Sprintf("a process may have %d descriptors here: the connections are held by %d client processes", descriptors, clients)
		if servers > 0 {
			text += fmt.Sprintf(" and %d server processes", servers)
		}
		r.res.Notes = append(r.res.Notes, text)
	}
	if servers > 0 {
		r.res.Notes = append(r.res.Notes, "clients and servers share this machine, so latency, CPU and kernel memory are of both together")
	}
}

// stop ends the processes.
func (r *run) stop() {
	if r.clients != nil {
		r.clients.Kill()
	}
	r.servers.Stop(exitTimeout)
}

// finish lets the processes end and reports.
func (r *run) finish() error {
	r.res.Interrupted = r.ctx.Err() != nil
	r.progress.end()
	last, err := r.clients.Finish(exitTimeout)
	if err != nil {
		r.res.Errors = append(r.res.Errors, err.Error())
	}
	r.noteServerOutput(r.servers.Stop(exitTimeout))
	r.res.Groups, r.res.Failures = last.Groups, last.Failures
	r.res.Notes = append(r.res.Notes, last.Notes...)
	r.res.Took = time.Since(r.began)
	if r.clientDelay > notedDelay {
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("this client was late itself, by up to %v: so are its figures of that moment", r.clientDelay))
	}
	r.res.Errors = append(r.res.Errors, r.targetErrors()...)
	return r.opt.report(r.out, r.res)
}

// quote notes the last words of servers, of some if there are many.
func (r *run) noteServerOutput(said []string) {
	const few = 4
	for i, words := range said {
		if i == few {
			r.res.Notes = append(r.res.Notes, fmt.Sprintf("%d other servers said the like", len(said)-few))
			break
		}
		r.res.Notes = append(r.res.Notes, "a server said: "+words)
	}
}
