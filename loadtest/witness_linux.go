package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/path"
	"github.com/idlewheel/idlewheel/loadtest/internal/witness"
)

func newWitness() *cobra.Command {
	var c witness.Config
	var pid int
	var out string
	cmd := &cobra.Command{
		Use: "witness --port PORT | --pid PID", Short: "Watch a server in production, and find connections closed while alive",
		Long: `Watch the connections of a server on this machine through the kernel. The server may be any program, and takes no part in it.
The report has the connections that the server closed while they were alive, those that it kept although the peer is silent,
its idle timeouts as they really are, and the heartbeat interval that would have been enough. See loadtest/README.md for what
"alive" means. No privilege is needed, except for --pid of another user.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkWitness(&c, pid, out); err != nil {
				return err
			}
			var told time.Duration
			c.Progress = func(passed time.Duration, open, closed int) {
				if passed-told >= time.Second {
					told = passed
					fmt.Fprintf(cmd.ErrOrStderr(), "%3.0fs %7s open %7s closed by the server\n", passed.Seconds(), format.Count(open), format.Count(closed))
				}
			}
			r, err := witness.Watch(cmd.Context(), c)
			if err != nil {
				return exitError{err, exitCannot}
			}
			err = writeReport(cmd, out, r, r.Interrupted)
			if alive, dead := r.ClosedAlive(), r.Verdicts[witness.KeptDead]; err == nil && alive+dead > 0 {
				err = fmt.Errorf("the server closed %d connections while they were alive, and kept %d dead ones", alive, dead)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntSliceVar(&c.Ports, "port", nil, "TCP `port` of the server; may be set several times")
	f.IntVar(&pid, "pid", 0, "watch the ports on which this `process` listens")
	f.DurationVar(&c.Every, "every", 250*time.Millisecond, "time between samples, 10ms to 1m")
	f.DurationVar(&c.For, "for", time.Minute, "duration of the watch; 0 is until Ctrl-C")
	f.DurationVar(&c.Timeout, "timeout", 0, "idle timeout of the server; 0 is the one that it appears to have")
	f.StringVar(&out, "out", "", "write the report to a `file`, as JSON; - is stdout, with the text on stderr")
	return cmd
}

// checkWitness checks the flags of witness, and adds the ports of the process.
func checkWitness(c *witness.Config, pid int, out string) error {
	var p problems
	p.require(len(c.Ports) > 0 || pid != 0, "--port and --pid: set one")
	for _, port := range c.Ports {
		p.require(port >= 1 && port <= 65535, "--port %d: set 1 to 65535", port)
	}
	p.require(pid >= 0, "--pid is %d: set a process", pid)
	p.require(c.Every >= 10*time.Millisecond && c.Every <= time.Minute, "--every is %v: set 10ms to 1m", c.Every)
	p.require(c.For == 0 || c.For >= c.Every, "--for is %v: set at least --every, or 0", c.For)
	p.require(c.Timeout >= 0, "--timeout is %v: set a positive duration, or 0", c.Timeout)
	p.add(checkWritable(out))
	if err := p.err(); err != nil || pid == 0 {
		return err
	}
	ports, err := witness.ListeningPorts(pid)
	c.Ports = append(c.Ports, ports...)
	p.add(err)
	p.require(err != nil || len(ports) > 0, "process %d listens on no TCP port", pid)
	return p.err()
}

func newPath() *cobra.Command {
	var c path.Config
	var out string
	cmd := &cobra.Command{
		Use: "path --target HOST:PORT", Short: "Find out how long a path keeps an idle connection",
		Long: `Find out how long the path to an echo server keeps an idle connection: NAT, load balancers and firewalls forget it, and seldom
tell. Connections are silent for durations that double, and then send a line. The gap between the last that survived and the
first that did not is divided in eight until it is at most --precision. All connections of a round run at the same time, so a
round takes as long as the shortest silence that fails. Run it where the clients are.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPath(&c, out); err != nil {
				return err
			}
			c.Progress = cmd.ErrOrStderr()
			r, err := path.Find(cmd.Context(), c)
			if err != nil {
				return fmt.Errorf("--target %s: %w", c.Target, err)
			}
			return writeReport(cmd, out, r, r.Interrupted)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.Target, "target", "", "`host:port` of an echo server")
	f.DurationVar(&c.From, "from", time.Second, "shortest silence")
	f.DurationVar(&c.To, "to", 2*time.Hour, "longest silence")
	f.IntVar(&c.Parallel, "parallel", 3, "connections per silence, 1 to 100; a silence fails if one of them fails")
	f.DurationVar(&c.Precision, "precision", time.Second, "largest gap between the silence that survived and the one that did not")
	f.DurationVar(&c.Patience, "patience", 10*time.Second, "longest wait for a connection or an echo")
	f.StringVar(&out, "out", "", "write the report to a `file`, as JSON; - is stdout, with the text on stderr")
	return cmd
}

// checkPath checks the flags of path, and resolves the target.
func checkPath(c *path.Config, out string) error {
	var p problems
	p.resolve(fmt.Sprintf("--target %q", c.Target), &c.Target)
	p.require(c.From >= 100*time.Millisecond, "--from is %v: set at least 100ms", c.From)
	p.require(c.To > c.From && c.To <= 7*24*time.Hour, "--to is %v: set more than --from, and at most 168h", c.To)
	p.require(c.Parallel >= 1 && c.Parallel <= 100, "--parallel is %d: set 1 to 100", c.Parallel)
	p.require(c.Precision >= 10*time.Millisecond, "--precision is %v: set at least 10ms", c.Precision)
	p.require(c.Patience >= 100*time.Millisecond && c.Patience <= time.Hour, "--patience is %v: set 100ms to 1h", c.Patience)
	p.add(checkWritable(out))
	return p.err()
}

// writeReport writes the report as text to stdout, and as JSON to out. If out is stdout, the text
// goes to stderr.
func writeReport(cmd *cobra.Command, out string, report interface{ Write(io.Writer) }, interrupted bool) error {
	err := write(cmd, out, func(w io.Writer) error {
		to := json.NewEncoder(w)
		to.SetIndent("", "  ")
		return to.Encode(report)
	})
	report.Write(textTo(cmd, out))
	if err == nil && interrupted {
		return errInterrupted
	}
	return err
}
