package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// A count is a number of connections, such as 500, 100k or 1m. Indexes and addresses have 32 bits.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "count" }

func (c *count) Set(text string) error {
	number := strings.ToLower(text)
	for unit, exponent := range map[string]string{"k": "e3", "m": "e6"} {
		if before, ok := strings.CutSuffix(number, unit); ok {
			number = before + exponent
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || n > 100e6 || n != float64(int(n)) {
		return fmt.Errorf("%q is not a number of connections up to 100m, such as 500, 100k or 1m", text)
	}
	*c = count(n)
	return nil
}

// options are the flags of all load tests. Those in the result are its Setup.
type options struct {
	result.Setup
	launch     bool
	portsEach  bool
	binary     string
	serverArgs string
	beginAt    int64 // Unix seconds; 0: at once
	pids       []int
	against    string
	bareBytes  float64 // per connection, from the file against
	heartbeat  time.Duration
	jitter     float64
	size       int
	out, html  string
	conditions []string             // of --expect
	expected   []result.Expectation // parsed conditions
	cmd        *cobra.Command

	// Flags of some verbs.
	length      time.Duration // --for, --hold or --outage
	reap        bool
	living      int
	every, calm time.Duration
	mix         string
	pair        string
	rounds      int
	sendRate    float64
	answerRate  float64 // of the last echo
}

// add adds the flags that all verbs have, with the defaults of the scenario.
func (o *options) add(cmd *cobra.Command, s scenario) {
	o.cmd, o.Connections = cmd, s.connections
	f := cmd.Flags()
	f.SortFlags = false
	f.VarP((*count)(&o.Connections), "connections", "c", "number of connections, such as 500, 100k or 1m")
	f.StringArrayVar(&o.Targets, "target", nil, "`host:port` of an echo server; connections take repeated targets in turn; without one, cmd/echo-heartbeat is built and launched")
	f.IntVar(&o.Servers, "servers", 0, "number of launched servers; 0 is as many as needed")
	f.BoolVar(&o.portsEach, "ports-each", false, "give each launched server a port of its own instead of a shared one (SO_REUSEPORT)")
	f.StringVar(&o.binary, "server", "", "`file` of a server to launch instead of building one")
	f.StringVar(&o.serverArgs, "server-args", "", "further flags of the launched server, such as \"--min-rate 100\"")
	f.BoolVar(&o.Bare, "bare", false, "launch gnet without the reaper, to compare the cost")
	f.DurationVar(&o.Timeout, "timeout", s.timeout, "idle timeout of the target; 0 if it has none or it is unknown")
	f.DurationVar(&o.Tick, "tick", 100*time.Millisecond, "tick of the launched reaper")
	f.StringVar(&o.Source, "source", "", "`prefix` of the source addresses, \"none\" for the kernel's choice; 127.0.0.0/8 for targets in it")
	f.IntVar(&o.Sources, "sources", 0, "number of source addresses; 0 is one per thousand connections")
	f.IntVar(&o.Clients, "clients", 0, "number of client processes; 0 is as many as needed")
	f.Float64Var(&o.Rate, "rate", 10_000, "new connections per second")
	f.DurationVar(&o.Ramp, "ramp", 0, "time in which the rate rises to --rate")
	f.Int64Var(&o.beginAt, "begin-at", 0, "start at this `unix` second, together with other machines; a late start fails")
	f.DurationVar(&o.Patience, "patience", 20*time.Second, "longest wait for a connection or an answer")
	f.DurationVar(&o.heartbeat, "heartbeat", s.heartbeat, "interval between messages of a living connection; by default at most a third of --timeout")
	f.Float64Var(&o.jitter, "jitter", 0.1, "largest deviation of an interval, as a part of it, 0 to 0.5")
	f.IntVar(&o.size, "size", 64, "bytes of a message; below 44 an answer to another connection is not noticed")
	f.IntSliceVar(&o.pids, "pid", nil, "processes of a --target on this machine, to measure them and to stop them in an outage")
	f.StringVar(&o.against, "against", "", "result of the same load with --bare, to show the cost of the reaper alone")
	o.addReport(cmd)
}

// addReport adds the flags of the report.
func (o *options) addReport(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "write the result to a `file`, as JSON; - is stdout")
	f.StringVar(&o.html, "html", "", "write a report to a `file`, as an HTML page; - is stdout")
	f.StringArrayVar(&o.conditions, "expect", nil, "`condition` on the result, such as 'lateness.p99<250ms'; can be repeated; the README lists the names")
}

// checkReport checks the flags of the report.
func (o *options) checkReport(p *problems) {
	p.add(checkWritable(o.out))
	p.add(checkWritable(o.html))
	p.require(o.out != toStdout || o.html != toStdout, "--out and --html are both -: write one of them to a file")
	for _, text := range o.conditions {
		e, err := result.ParseExpectation(text)
		p.require(err == nil, "--expect %w", err)
		o.expected = append(o.expected, e)
	}
}

// check checks the flags that all verbs have, resolves targets, and reads the result of --against.
func (o *options) check(p *problems) {
	if !o.cmd.Flags().Changed("heartbeat") && o.exceedsTimeout(o.heartbeat) {
		o.heartbeat = o.Timeout / 3
	}
	p.require(o.Connections >= 1, "--connections is %d: set at least 1", o.Connections)
	o.checkServers(p)
	o.checkLoad(p)
	for i, t := range o.Targets {
		p.resolve("--target "+t, &o.Targets[i])
	}
	p.add(o.readAgainst())
	o.checkReport(p)
}

// problems are the errors found in the flags.
type problems []error

func (p *problems) add(err error) { *p = append(*p, err) }

// require adds an error unless ok is set.
func (p *problems) require(ok bool, format string, args ...any) {
	if !ok {
		p.add(fmt.Errorf(format, args...))
	}
}

// err returns the problems as an error in the flags, or nil.
func (p problems) err() error {
	if err := errors.Join(p...); err != nil {
		return exitError{err, exitUsage}
	}
	return nil
}

// checkServers checks the flags of the target, and sets launch if there is no --target.
func (o *options) checkServers(p *problems) {
	o.launch = len(o.Targets) == 0
	if o.launch {
		p.require(o.Bare || o.Timeout != 0, "--timeout is 0: set the timeout of the launched server")
		p.require(len(o.pids) == 0, "--pid is for a --target")
	} else {
		p.require(o.Servers <= 0 && !o.Bare && o.binary == "" && o.serverArgs == "" && !o.portsEach,
			"--servers, --server, --server-args, --ports-each and --bare are for launched servers, without a --target")
	}
	p.require(o.Servers >= 0, "--servers is %d: set a positive number, or 0", o.Servers)
	p.require(o.Timeout >= 0, "--timeout is %v: set a positive duration, or 0", o.Timeout)
	p.require(o.Tick >= time.Millisecond, "--tick is %v: set at least 1ms", o.Tick)
	for _, pid := range o.pids {
		p.require(pid >= 2 && pid != os.Getpid() && syscall.Kill(pid, 0) == nil, "--pid %d: no such process of a target", pid)
	}
}

// checkLoad checks the flags that say how connections are opened, and how often they send.
func (o *options) checkLoad(p *problems) {
	p.require(o.Clients >= 0, "--clients is %d: set a positive number, or 0", o.Clients)
	p.require(o.Sources >= 0, "--sources is %d: set a positive number, or 0", o.Sources)
	p.require(o.Rate > 0 && o.Rate <= 1e6, "--rate is %v: set more than 0, and at most a million", o.Rate)
	p.require(o.Ramp >= 0 && o.Ramp <= time.Hour, "--ramp is %v: set 0 to 1h", o.Ramp)
	p.require(o.beginAt >= 0, "--begin-at is %d: set seconds since 1970, as of date +%%s", o.beginAt)
	p.require(o.Patience >= time.Second && o.Patience <= time.Hour, "--patience is %v: set 1s to 1h", o.Patience)
	if o.Source != "" && o.Source != "none" {
		_, err := netip.ParsePrefix(o.Source)
		p.require(err == nil, "--source %q: set a prefix such as 127.0.0.0/8", o.Source)
	}
	p.require(o.heartbeat >= time.Millisecond, "--heartbeat is %v: set at least 1ms", o.heartbeat)
	p.require(o.jitter >= 0 && o.jitter <= 0.5, "--jitter is %v: set 0 to 0.5", o.jitter)
	p.require(o.size >= 2 && o.size <= 1<<20, "--size is %d: set 2 to 1048576", o.size)
	p.require(!o.exceedsTimeout(o.heartbeat),
		"--heartbeat of %v with --jitter %v is too long for a --timeout of %v: the target would rightly close living connections",
		o.heartbeat, o.jitter, o.Timeout)
}

// readAgainst reads the costs of --against.
func (o *options) readAgainst() error {
	if o.against == "" {
		return nil
	}
	bare, err := result.Read(o.against)
	if err != nil {
		return fmt.Errorf("--against: %w", err)
	}
	if !bare.Setup.Bare || bare.Costs == nil {
		return fmt.Errorf("--against %s: not a result with --bare and costs per connection", o.against)
	}
	o.bareBytes = bare.Costs.ServerBytes
	return nil
}

// checkWritable checks that a file can be written, because an error now is better than one after
// the run. It removes the file if it created it. The name may be empty, or that of stdout.
func checkWritable(name string) error {
	if name == "" || name == toStdout {
		return nil
	}
	_, err := os.Lstat(name)
	created := errors.Is(err, os.ErrNotExist)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || !created {
		return err
	}
	return os.Remove(name)
}

// targetTimeout returns the idle timeout of the target, or 0 if it has none or it is unknown.
func (o *options) targetTimeout() time.Duration {
	if o.Bare {
		return 0
	}
	return o.Timeout
}

// exceedsTimeout reports whether a connection that sends once per interval can be silent for the
// timeout.
func (o *options) exceedsTimeout(interval time.Duration) bool {
	return o.Timeout > 0 && float64(interval)*(1+2*o.jitter) >= 0.95*float64(o.Timeout)
}

// resolve replaces a target by its numeric address. what names it in an error.
func (p *problems) resolve(what string, target *string) {
	host, port, err := net.SplitHostPort(*target)
	if err != nil || port == "" || host == "" {
		p.add(fmt.Errorf("%s: set host:port, such as 127.0.0.1:7000", what))
		return
	}
	addr, err := net.ResolveTCPAddr("tcp", *target)
	if err != nil {
		p.add(fmt.Errorf("%s: %w", what, err))
		return
	}
	p.require(addr.Port != 0, "%s: port 0 is not valid", what)
	*target = addr.String()
}
