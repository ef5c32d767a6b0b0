package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
)

// idleFlags are the flags that say which connections are idle.
type idleFlags struct {
	readTimeout, tick time.Duration
}

func (f *idleFlags) add(cmd *cobra.Command, readTimeout time.Duration) {
	cmd.Flags().DurationVar(&f.readTimeout, "read-timeout", readTimeout, "close a connection that sends nothing for so long")
	cmd.Flags().DurationVar(&f.tick, "tick", 100*time.Millisecond,
		"step of the deadlines: a connection is closed at most two ticks after its timeout;\n"+
			"by default less where the timeout is less than a second")
}

// config returns the flags as a Config, or a usageError.
func (f *idleFlags) config(cmd *cobra.Command) (idle.Config, error) {
	cfg := idle.Config{ReadTimeout: f.readTimeout, Tick: f.tick}
	if !cmd.Flags().Changed("tick") {
		cfg.Tick = 0 // the default depends on the timeout
	}
	if _, err := idle.Middleware(&echo{}, cfg); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

func newServe() *cobra.Command {
	var (
		flags idleFlags
		cfg   server.Config
		debug bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an echo server that reaps idle connections",
		Long: `Run an echo server that reaps idle connections.

A line PING is answered with PONG, everything else is echoed byte for byte. A connection that sends nothing for the read
timeout gets a line that says so and is closed. Try it with: nc 127.0.0.1 7000

Ctrl-C stops it.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Idle, err = flags.config(cmd); err != nil {
				return err
			}
			if cfg.Loops < 0 {
				return usageError{fmt.Errorf("--loops is %d: set a positive number, or 0 for one per CPU", cfg.Loops)}
			}
			level := slog.LevelWarn
			if debug {
				level = slog.LevelDebug
			}
			cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
			return serve(cmd.Context(), cmd.OutOrStdout(), cfg)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&cfg.Addr, "addr", "127.0.0.1:7000", "address to listen on: host:port, or unix:///path")
	flags.add(cmd, time.Minute)
	cmd.Flags().IntVar(&cfg.Loops, "loops", 0, "number of event loops; 0 is one per CPU")
	cmd.Flags().BoolVar(&cfg.SharePort, "share-port", false, "let other processes listen on the same port")
	cmd.Flags().BoolVar(&debug, "debug", false, "log each connection that is reaped")
	return cmd
}

func serve(ctx context.Context, out io.Writer, cfg server.Config) error {
	cfg.Handler = &echo{}
	var reaper *idle.Reaper
	cfg.Started = func(addr net.Addr, r *idle.Reaper) {
		reaper = r
		fmt.Fprintf(out, "listening on %s, read timeout %v, tick %v; Ctrl-C stops\n", addr, cfg.Idle.ReadTimeout, r.Config().Tick)
	}
	err := server.Run(ctx, cfg)
	if errors.Is(err, server.ErrBadAddress) {
		return usageError{err}
	}
	if reaper != nil {
		s := reaper.Stats()
		fmt.Fprintf(out, "stopped: %d connections, %d messages, %d reaped, mean %v late\n",
			s.Opened, s.Reads, s.Reaped[idle.ReadIdle], s.Lateness.Mean().Round(time.Millisecond))
	}
	return err
}
