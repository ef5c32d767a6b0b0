package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/idlewheel/idlewheel/idle"
)

// load reads limits from a file: a line for each flag, without dashes, as in "read-timeout 30s". What is not in the file is as on the
// command line. What follows a # is skipped, and so are empty lines.
func (f *idleFlags) load(cmd *cobra.Command, file string) (idle.Config, error) {
	fresh := &idleFlags{}
	limits := &cobra.Command{}
	fresh.addAll(limits, f.cfg.ReadTimeout)
	set := limits.Flags()
	var err error
	set.VisitAll(func(flag *pflag.Flag) {
		if given := cmd.Flags().Lookup(flag.Name); given.Changed && err == nil {
			err = set.Set(flag.Name, given.Value.String())
		}
	})
	if err != nil {
		return idle.Config{}, err
	}
	in, err := os.Open(file)
	if err != nil {
		return idle.Config{}, err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case set.Lookup(words[0]) == nil || len(words) != 2:
			return idle.Config{}, fmt.Errorf(`%s, line %d: %q is not a limit and its value, such as "read-timeout 30s"`, file, n, lines.Text())
		}
		if err := set.Set(words[0], words[1]); err != nil {
			return idle.Config{}, fmt.Errorf("%s, line %d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return idle.Config{}, err
	}
	return fresh.config(limits)
}

// hangups returns a channel for each SIGHUP, which would end the process otherwise, until the function that it returns is called.
func hangups() (signals <-chan os.Signal, ignore func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	return hangup, func() { signal.Stop(hangup) }
}

// reload loads the limits of a Reaper anew with each signal until ctx is done. An error changes nothing. load may be nil: nothing is to be
// loaded.
func reload(ctx context.Context, out io.Writer, reaper *idle.Reaper, signals <-chan os.Signal, load func() (idle.Config, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		if load == nil {
			fmt.Fprintln(out, "not reloaded: serve was started without a file of --limits")
			continue
		}
		cfg, err := load()
		if tick := reaper.Config().Tick; err == nil && cfg.Tick != 0 && cfg.Tick != tick {
			err = fmt.Errorf("tick %v: it stays %v until the next start", cfg.Tick, tick)
		}
		if err == nil {
			err = reaper.Update(func(present *idle.Config) {
				cfg.Tick, cfg.Logger = 0, present.Logger // these stay
				if cfg.MaxConnections == 0 {
					cfg.MaxConnections = present.MaxConnections
				}
				*present = cfg
			})
		}
		if err != nil {
			fmt.Fprintf(out, "not reloaded: %s\n", oneLine(err))
			continue
		}
		fmt.Fprintf(out, "reloaded: %s\n", describe(reaper.Config()))
	}
}
