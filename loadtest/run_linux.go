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

	"github.com/idlewheel/idlewheel/loadtest/internal/crew"
	"github.com/idlewheel/idlewheel/loadtest/internal/doctor"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/machine"
	"github.com/idlewheel/idlewheel/loadtest/internal/page"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

const (
	// opening is the phase in which the connections are opened.
	opening = "open"
	// reserve is how many descriptors a process keeps for what is no connection.
	reserve = 128
	// look is how often is looked whether a phase is over, and sampleEvery how often how things stand is kept.
	look        = 50 * time.Millisecond
	sampleEvery = time.Second
	// grace is for how long the target may be late with closing the dead before the run gives up.
	grace = 10 * time.Second
	// worthTelling is how late the client may be without a word in the report.
	worthTelling = 200 * time.Millisecond
	// ending is how long processes may take to end.
	ending = 30 * time.Second
)

// A run is one load test, from the start of its processes to its report.
type run struct {
	ctx     context.Context
	opt     *options
	out     io.Writer
	show    *progress
	res     *result.Result
	crew    *crew.Crew
	servers *crew.Servers
	specs   []load.Spec
	began   time.Time
	sampled time.Time
	failed  bool          // it cannot go on
	behind  time.Duration // by how much the client was late at most
	before  reading
	held    reading
}

// A reading is what the processes and the system use at a moment.
type reading struct {
	server, client result.Usage
	kernel         uint64
	open           uint64
}

// perform runs a load test of some groups of connections, to which happens what a script says.
func (o *options) perform(cmd *cobra.Command, verb string, specs []load.Spec, script func(r *run)) error {
	r := &run{
		ctx: cmd.Context(), opt: o, out: cmd.OutOrStdout(), show: newProgress(cmd.ErrOrStderr()), began: time.Now(), specs: specs,
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
	clients, servers := processes(total, descriptors-reserve)
	clients, servers = max(clients, o.clients), max(servers, o.servers)
	if !o.launch {
		servers = 0
	}
	o.spread(total)
	if err := r.examine(total, clients, servers); err != nil {
		return err
	}
	if o.launch {
		if r.servers, err = crew.StartServers(r.ctx, r.launch(servers)); err != nil {
			return err
		}
		o.targets = r.servers.Targets
	}
	if r.crew, err = crew.Start(clients); err != nil {
		return err
	}
	if err := r.awaitBegin(); err != nil {
		return err
	}
	r.before = r.read(0)
	r.describe(total, clients, servers, descriptors)
	return r.crew.Begin(load.Plan{
		Targets: o.targets, Source: o.source, Sources: o.sources, Rate: o.rate, Ramp: o.ramp, Patience: o.patience, Specs: r.specs,
	})
}

// late is how much later than the others a run may begin.
const late = time.Second

// awaitBegin waits until the time at which others begin as well.
func (r *run) awaitBegin() error {
	if r.opt.beginAt == 0 {
		return nil
	}
	left := time.Until(time.Unix(r.opt.beginAt, 0))
	if left < -late {
		return fmt.Errorf("it is %v later than --begin-at: what is measured now is not what the others measure", -left.Round(time.Second))
	}
	fmt.Fprintf(r.show.out, "waiting for --begin-at, %v\n", left.Round(time.Second))
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
func (r *run) examine(total, clients, servers int) error {
	checks := doctor.Examine(doctor.Wish{
		Connections: total, Clients: clients, Servers: servers, Sources: r.opt.sources, Targets: max(len(r.opt.targets), 1),
		Loopback: r.opt.launch,
	})
	if doctor.Worst(checks) == doctor.Cannot {
		doctor.Print(r.out, checks)
		return cannotError{errors.New("this machine cannot hold as many connections")}
	}
	return nil
}

// processes returns how many client and server processes hold some connections, if each may have so many descriptors for them. A server
// makes room for newcomers from 15/16 of its limit on, and the system does not spread connections quite evenly.
func processes(connections, descriptors int) (clients, servers int) {
	ceil := func(n int) int { return max(1, (connections+max(n, 1)-1)/max(n, 1)) }
	return ceil(descriptors), ceil(descriptors * 14 / 16)
}

// launch says how the servers are launched.
func (r *run) launch(servers int) crew.Launch {
	o := r.opt
	args := []string{"--loops", fmt.Sprint(max(1, runtime.NumCPU()/servers))}
	if o.bare {
		args = append(args, "--bare")
	} else {
		// All clients are ours, and several verbs let all of them fall silent at the same moment. The
		// server would hold its verdicts then, because its own network may be down: this client would
		// measure that instead of how late the timeout is. --server-args can set another grace.
		args = append(args, "--read-timeout", o.timeout.String(), "--tick", o.tick.String(), "--outage-grace", "-1s")
	}
	return crew.Launch{
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

// goes reports whether the run goes on.
func (r *run) goes() bool { return !r.failed && r.ctx.Err() == nil }

// fail ends the run with what is wrong.
func (r *run) fail(format string, args ...any) {
	r.failed = true
	r.res.Errors = append(r.res.Errors, fmt.Sprintf(format, args...))
}

// phase tells the crew that a phase begins and what it is to do, and waits until a condition holds, time is up, or the run is over. It
// reports whether the run goes on.
func (r *run) phase(name string, atMost time.Duration, until func(load.Report) bool, orders ...load.Command) bool {
	if !r.goes() {
		return false
	}
	r.crew.Tell(load.Command{Phase: name})
	for _, order := range orders {
		r.crew.Tell(order)
	}
	from := time.Since(r.began)
	for r.goes() {
		report, working := r.crew.Report()
		r.behind = max(r.behind, report.Behind)
		r.sample(name, report, time.Since(r.began)-from, atMost)
		switch died := r.servers.Died(); {
		case died != nil:
			r.fail("%v", died)
		case !working:
			r.fail("a client process has ended before the run")
		}
		left := atMost - (time.Since(r.began) - from)
		if left <= 0 || until != nil && until(report) {
			break
		}
		select {
		case <-r.ctx.Done():
		case <-time.After(min(look, left)):
		}
	}
	r.res.Phases = append(r.res.Phases, result.Phase{Name: name, From: from, To: time.Since(r.began)})
	if report, _ := r.crew.Report(); !r.goes() || time.Since(r.sampled) > look { // so that its end is in the charts
		r.sampled = time.Time{}
		r.sample(name, report, atMost, atMost)
	}
	return r.goes()
}

// open waits until all connections are opened that do not wait, or have failed.
func (r *run) open() bool {
	want := uint64(0)
	for _, s := range r.specs {
		if !s.Waits {
			want += uint64(s.Connections)
		}
	}
	atMost := 4*time.Duration(float64(want)/r.opt.rate*float64(time.Second)) + r.opt.ramp + r.opt.patience + grace
	done := r.phase(opening, atMost, func(now load.Report) bool {
		all := sumOf(now)
		return all.Opened+all.OpenFailed >= want || all.Opened == 0 && all.OpenFailed >= hopeless
	})
	report, _ := r.crew.Report()
	if all := sumOf(report); done && all.Opened == 0 {
		why := "no connection was opened"
		if reasons := report.Failures.Reasons(); len(reasons) > 0 {
			why = reasons[0]
		}
		if strings.HasPrefix(why, "bind") {
			r.fail("no connection can be opened: %s: set another --source", why)
		} else {
			r.fail("nobody can be reached at %s: %s: is the server running there?", strings.Join(r.opt.targets, ", "), why)
		}
	}
	return r.goes()
}

// hopeless is after how many connections that failed, and none that did not, no more are tried.
const hopeless = 200

// sumOf returns all groups of a report together.
func sumOf(report load.Report) result.Group {
	var sum result.Group
	for i := range report.Groups {
		sum.Add(&report.Groups[i])
	}
	return sum
}

// openOf returns how many connections of a group are open.
func openOf(report load.Report, group string) (n uint64) {
	for _, g := range report.Groups {
		if g.Name == group {
			n += g.Open
		}
	}
	return n
}

// read returns what is used now.
func (r *run) read(open uint64) reading {
	now := reading{open: open}
	now.server, now.client = usage(r.serverPids()), usage(r.crew.Pids())
	now.kernel, _ = machine.KernelMemory() // in a container it may not be known
	return now
}

// serverPids returns the processes of the target, as far as they are known.
func (r *run) serverPids() []int { return append(r.servers.Pids(), r.opt.pids...) }

func usage(pids []int) (sum result.Usage) {
	for _, pid := range pids {
		if of, err := machine.Of(pid); err == nil { // otherwise it has just ended, which is noticed elsewhere
			sum.RSS += of.RSS
			sum.Anonymous += of.Anonymous
			sum.CPU += of.CPU
		}
	}
	return sum
}

// sample shows how things stand, and keeps it once a second.
func (r *run) sample(phase string, report load.Report, passed, of time.Duration) {
	if time.Since(r.sampled) < sampleEvery {
		return
	}
	r.sampled = time.Now()
	all := sumOf(report)
	now := r.read(all.Open)
	r.res.Samples = append(r.res.Samples, result.Sample{
		At: time.Since(r.began), Open: all.Open, Opened: all.Opened, Closed: all.Opened - all.Open, Messages: all.Messages,
		Server: now.server, Client: now.client, Kernel: now.kernel - min(now.kernel, r.before.kernel),
	})
	r.show.update(r.res.Samples, phase, &all, passed, of)
}

// costs notes what the connections cost that were held from one moment to another.
func (r *run) costs(from reading) {
	now := r.held
	n := float64(now.open)
	if now.open < fewest { // it would be what a process costs
		return
	}
	per := func(now, before uint64) float64 { return (float64(now) - float64(before)) / n }
	r.res.Costs = &result.Costs{
		Connections: now.open,
		ClientBytes: per(now.client.Anonymous, r.before.client.Anonymous),
		KernelBytes: per(now.kernel, r.before.kernel),
		BothEnds:    len(r.serverPids()) > 0,
		ClientCPU:   now.client.CPU - from.client.CPU,
	}
	if len(r.serverPids()) > 0 {
		r.res.Costs.ServerBytes = per(now.server.Anonymous, r.before.server.Anonymous)
		r.res.Costs.ServerCPU = now.server.CPU - from.server.CPU
	}
	if bare := r.opt.bareCosts; bare != nil {
		r.res.Costs.BareBytes = bare.ServerBytes
	}
}

// fewest is for how many connections costs are told.
const fewest = 1000

// stop ends the processes.
func (r *run) stop() {
	if r.crew != nil {
		r.crew.Kill()
	}
	r.servers.Stop(ending)
}

// finish lets the processes end and reports.
func (r *run) finish() error {
	r.res.Interrupted = r.ctx.Err() != nil
	r.show.end()
	last, err := r.crew.Finish(ending)
	if err != nil {
		r.res.Errors = append(r.res.Errors, err.Error())
	}
	r.quote(r.servers.Stop(ending))
	r.res.Groups, r.res.Failures = last.Groups, last.Failures
	r.res.Notes = append(r.res.Notes, last.Notes...)
	r.res.Took = time.Since(r.began)
	if r.behind > worthTelling {
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("this client was late itself, by up to %v: so are its figures of that moment", r.behind))
	}
	r.res.Errors = append(r.res.Errors, r.judge()...)
	return r.opt.report(r.out, r.res)
}

// quote notes the last words of servers, of some if there are many.
func (r *run) quote(said []string) {
	const few = 4
	for i, words := range said {
		if i == few {
			r.res.Notes = append(r.res.Notes, fmt.Sprintf("%d other servers said the like", len(said)-few))
			break
		}
		r.res.Notes = append(r.res.Notes, "a server said: "+words)
	}
}

// judge says what is wrong with the target as a whole, as far as messages were sent that it is to answer.
func (r *run) judge() (verdicts []string) {
	var all result.Group
	for i := range r.res.Groups {
		if load.Behaviour(r.res.Groups[i].Behaviour).Echoes() {
			all.Add(&r.res.Groups[i])
		}
	}
	switch {
	case r.failed || r.res.Interrupted || all.Opened == 0 || all.Answers > 0:
	case all.Garbled+all.Told > 0:
		verdicts = append(verdicts, "the target answers something else than it is sent: it is no echo server")
	case all.Lost+all.Early >= all.Opened:
		verdicts = append(verdicts, "the target closes whatever it accepts")
	case all.Messages > 0:
		verdicts = append(verdicts, "the target never answers: it is no echo server, or it hangs")
	}
	return verdicts
}

// report writes a result in every form that is asked for, and returns what the exit code says.
func (o *options) report(out io.Writer, res *result.Result) error {
	o.expect.judge(res)
	summarize(out, res)
	var errs []error
	if o.out != "" {
		errs = append(errs, res.Write(o.out))
	}
	if o.html != "" {
		errs = append(errs, writePage(o.html, res))
	}
	switch {
	case res.Interrupted:
		errs = append(errs, errInterrupted)
	case len(res.Errors) > 0:
		errs = append(errs, errors.New(strings.Join(res.Errors, "; ")))
	case res.Failed():
		errs = append(errs, errors.New("an expectation does not hold"))
	}
	return errors.Join(errs...)
}

func writePage(name string, res *result.Result) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return page.Write(f, res)
}
