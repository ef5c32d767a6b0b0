package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/path"
)

func newPath() *cobra.Command {
	var c path.Config
	var out string
	cmd := &cobra.Command{
		Use: "path --target HOST:PORT", Short: "Find out how long a path keeps an idle connection", Args: noArgs,
		Long: `Find out how long the path to an echo server keeps an idle connection: NAT, load balancers and firewalls forget it, and seldom
tell. Connections are silent for durations that double, and then send a line. The gap between the last that survived and the
first that did not is divided in eight until it is at most --precision. All connections of a round run at the same time, so a
round takes as long as the shortest silence that fails. Run it where the clients are.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPath(&c, out); err != nil {
				return err
			}
			c.Progress = func(t path.Try) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%10s silent: %s\n", t.Silence.Round(time.Millisecond), t.How)
			}
			r, err := path.Find(cmd.Context(), c)
			if err != nil {
				return fmt.Errorf("--target %s: %w", c.Target, err)
			}
			if err := writeReport(cmd, out, r); err != nil {
				return err
			}
			if r.Interrupted {
				return errInterrupted
			}
			return nil
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
	if addr, err := resolve(c.Target); err != nil {
		p.add(fmt.Errorf("--target %s: %w", c.Target, err))
	} else {
		c.Target = addr
	}
	p.require(c.From >= 100*time.Millisecond, "--from is %v: set at least 100ms", c.From)
	p.require(c.To > c.From && c.To <= 7*24*time.Hour, "--to is %v: set more than --from, and at most 168h", c.To)
	p.require(c.Parallel >= 1 && c.Parallel <= 100, "--parallel is %d: set 1 to 100", c.Parallel)
	p.require(c.Precision >= 10*time.Millisecond, "--precision is %v: set at least 10ms", c.Precision)
	p.require(c.Patience >= 100*time.Millisecond && c.Patience <= time.Hour, "--patience is %v: set 100ms to 1h", c.Patience)
	if out != "" && out != "-" {
		p.add(checkWritable(out))
	}
	if err := errors.Join(p...); err != nil {
		return usageError{err}
	}
	return nil
}
