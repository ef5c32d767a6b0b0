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

// A count is a number of connections, which may be written as 100k or 1m.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }
func (c *count) Type() string   { return "count" }

func (c *count) Set(text string) error {
	number, factor := strings.ToLower(text), 1.0
	for suffix, f := range map[string]float64{"k": 1e3, "m": 1e6} {
		if n, found := strings.CutSuffix(number, suffix); found {
			number, factor = n, f
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n*factor < 0 || n*factor > maxConnections || n*factor != float64(int(n*factor)) {
		return fmt.Errorf("%q is no number of connections, such as 500, 100k or 1m", text)
	}
	*c = count(n * factor)
	return nil
}

// maxConnections is the highest number of connections: the schedule and the places of connections have 32 bits, and so do addresses.
const maxConnections = 100e6

// options are the flags that all runs have.
type options struct {
	connections count
	targets     []string
	launch      bool
	servers     int
	portsEach   bool
	binary      string
	serverArgs  string
	bare        bool
	timeout     time.Duration
	tick        time.Duration
	source      string
	sources     int
	clients     int
	rate        float64
	ramp        time.Duration
	beginAt     int64 // unix seconds, 0 for at once
	patience    time.Duration
	pids        []int
	against     string
	bareCosts   *result.Costs // of against
	heartbeat   time.Duration
	jitter      float64
	size        int
	out, html   string
	expect      expectations
}

// add adds them, with defaults of the verb.
func (o *options) add(cmd *cobra.Command, connections int, heartbeat, timeout time.Duration) {
	o.connections = count(connections)
	f := cmd.Flags()
	f.SortFlags = false
	f.VarP(&o.connections, "connections", "c", "how many connections, such as 500, 100k or 1m")
	f.StringArrayVar(&o.targets, "target", nil, "`host:port` of an echo server; may be repeated: connections go to them by turns")
	f.BoolVar(&o.launch, "launch", false, "build and launch cmd/echo-heartbeat, which is what is done without a --target")
	f.IntVar(&o.servers, "servers", 0, "launch so many processes of it; 0 is as many as are needed")
	f.BoolVar(&o.portsEach, "ports-each", false, "let each of them have a port of its own instead of sharing one (SO_REUSEPORT)")
	f.StringVar(&o.binary, "server", "", "`file` of a server to launch instead of building one")
	f.StringVar(&o.serverArgs, "server-args", "", "further flags for serve, such as \"--min-rate 100\"")
	f.BoolVar(&o.bare, "bare", false, "launch gnet without the reaper, to see what the reaper costs")
	f.DurationVar(&o.timeout, "timeout", timeout, "after which the target closes a silent connection; 0 is not known or never")
	f.DurationVar(&o.tick, "tick", 100*time.Millisecond, "of the reaper that is launched")
	f.StringVar(&o.source, "source", "", "`prefix` that connections come from, \"none\" for none; 127.0.0.0/8 for targets in it")
	f.IntVar(&o.sources, "sources", 0, "how many addresses of it; 0 is one for a thousand connections")
	f.IntVar(&o.clients, "clients", 0, "how many processes hold the connections; 0 is as many as are needed")
	f.Float64Var(&o.rate, "rate", 10_000, "connections to open in a second")
	f.DurationVar(&o.ramp, "ramp", 0, "reach that rate evenly over so long")
	f.Int64Var(&o.beginAt, "begin-at", 0, "open the first at this `unix` second, for several machines at the same time; who is late fails")
	f.DurationVar(&o.patience, "patience", 20*time.Second, "for being connected, and for an answer")
	f.DurationVar(&o.heartbeat, "heartbeat", heartbeat, "between the messages of a living connection")
	f.Float64Var(&o.jitter, "jitter", 0.1, "part of it by which each differs at most, 0 to 0.5")
	f.IntVar(&o.size, "size", 32, "bytes of a message")
	f.IntSliceVar(&o.pids, "pid", nil, "processes of a --target on this machine, to measure them, and to stop them in a stall")
	f.StringVar(&o.against, "against", "", "result of the same load with --bare, to tell what gnet takes from what the reaper does")
	f.StringVar(&o.out, "out", "", "write the result to a `file`, as JSON")
	f.StringVar(&o.html, "html", "", "write a report to a `file`, as a page of HTML")
	o.expect.add(cmd)
}

// check checks them, and fills in what is 0.
func (o *options) check() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.connections < 1, "--connections is %d: set at least 1", o.connections)
	refuse(o.launch && len(o.targets) > 0, "--launch and --target: choose one")
	o.launch = len(o.targets) == 0
	refuse(!o.launch && (o.servers > 0 || o.bare || o.binary != "" || o.serverArgs != "" || o.portsEach),
		"--servers, --server, --server-args, --ports-each and --bare are for servers that are launched, without a --target")
	refuse(o.servers < 0, "--servers is %d: set a positive number, or 0", o.servers)
	refuse(o.clients < 0, "--clients is %d: set a positive number, or 0", o.clients)
	refuse(o.sources < 0, "--sources is %d: set a positive number, or 0", o.sources)
	refuse(o.timeout < 0, "--timeout is %v: set a positive duration, or 0", o.timeout)
	refuse(o.launch && !o.bare && o.timeout == 0, "--timeout is 0: set what the server that is launched is to have")
	refuse(o.tick < time.Millisecond, "--tick is %v: set at least 1ms", o.tick)
	refuse(!(o.rate > 0 && o.rate <= 1e6), "--rate is %v: set more than 0, and at most a million", o.rate)
	refuse(o.ramp < 0 || o.ramp > time.Hour, "--ramp is %v: set 0 to 1h", o.ramp)
	refuse(o.beginAt < 0, "--begin-at is %d: set seconds since 1970, as of date +%%s", o.beginAt)
	refuse(o.launch && len(o.pids) > 0, "--pid is for a --target")
	refuse(o.patience < time.Second || o.patience > time.Hour, "--patience is %v: set 1s to 1h", o.patience)
	refuse(o.heartbeat < time.Millisecond, "--heartbeat is %v: set at least 1ms", o.heartbeat)
	refuse(!(o.jitter >= 0 && o.jitter <= 0.5), "--jitter is %v: set 0 to 0.5", o.jitter)
	refuse(o.size < 2 || o.size > 1<<20, "--size is %d: set 2 to 1048576", o.size)
	refuse(o.exceedsTimeout(o.heartbeat),
		"--heartbeat of %v with --jitter %v is too seldom for a --timeout of %v: the living would be reaped, and rightly",
		o.heartbeat, o.jitter, o.timeout)
	for _, pid := range o.pids {
		refuse(pid < 2 || pid == os.Getpid() || syscall.Kill(pid, 0) != nil, "--pid %d: there is no such process of a target", pid)
	}
	for _, name := range []string{o.out, o.html} { // rather now than after the run
		if name != "" {
			errs = append(errs, checkWritable(name))
		}
	}
	for i, t := range o.targets {
		addr, err := resolve(t)
		if err != nil {
			errs = append(errs, fmt.Errorf("--target %s: %w", t, err))
			continue
		}
		o.targets[i] = addr
	}
	if o.source != "" && o.source != "none" {
		if _, err := netip.ParsePrefix(o.source); err != nil {
			errs = append(errs, fmt.Errorf("--source %q: set a prefix such as 127.0.0.0/8", o.source))
		}
	}
	if o.against != "" {
		bare, err := result.Read(o.against)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--against: %w", err))
		case !bare.Setup.Bare || bare.Costs == nil:
			errs = append(errs, fmt.Errorf("--against %s: it is no result of connections that were held with --bare", o.against))
		default:
			o.bareCosts = bare.Costs
		}
	}
	errs = append(errs, o.expect.check())
	if err := errors.Join(errs...); err != nil {
		return usageError{err}
	}
	return nil
}

// checkWritable finds out whether a file can be written, and leaves none behind that was not there.
func checkWritable(name string) error {
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

// exceedsTimeout reports whether who sends something in each interval may be silent for the timeout.
func (o *options) exceedsTimeout(interval time.Duration) bool {
	return o.timeout > 0 && float64(interval)*(1+2*o.jitter) >= 0.95*float64(o.timeout)
}

// resolve returns the address of a target in digits.
func resolve(target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil || port == "" || host == "" {
		return "", errors.New("it is to be host:port, such as 127.0.0.1:7000")
	}
	addr, err := net.ResolveTCPAddr("tcp", target)
	if err != nil {
		return "", err
	}
	if addr.Port == 0 {
		return "", errors.New("port 0 is none")
	}
	at := addr.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String(), nil
}

// perSource is how many connections come from one address, if nobody says otherwise.
const perSource = 1000

// spread sets where connections come from. Servers that are launched are in 127.0.0.0/8.
func (o *options) setSources(connections int) {
	local := true
	for _, t := range o.targets {
		addr, err := netip.ParseAddrPort(t)
		local = local && err == nil && addr.Addr().Unmap().Is4() && addr.Addr().Unmap().IsLoopback()
	}
	switch {
	case o.source == "none":
		o.source = ""
	case o.source == "" && local:
		o.source = "127.0.0.0/8"
	}
	if o.sources == 0 {
		o.sources = max(1, connections/perSource)
	}
	if o.source == "" {
		o.sources = 1
	}
}

// noArgs refuses arguments that are not flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}
