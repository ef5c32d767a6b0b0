package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/server"
)

func newServe() *cobra.Command {
	var (
		flags idleFlags
		cfg   server.Config
		file  string
		token string
		logs  logFlags
		alone bool
	)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an echo server that reaps idle connections",
		Long: `Run an echo server that reaps idle connections.

A line PING is answered with PONG, everything else is echoed byte for byte. A connection that sends nothing for the read
timeout, or passes another limit, gets a line that says so and is closed. A limit of 0 is none. Try it with: nc 127.0.0.1 7000

Ctrl-C or SIGTERM stops it, after the drain if there is one; a second one at once. Exit codes: 0 stopped, 1 failed, 2 wrong flags.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var load func() (idle.Config, error) // nil if there is nothing to load anew
			var err error
			if file == "" {
				cfg.Idle, err = flags.config(cmd)
			} else {
				load = func() (idle.Config, error) { return flags.load(cmd, file) }
				cfg.Idle, err = load()
			}
			if err != nil {
				return usageError{err}
			}
			if cfg.Logger, err = logs.logger(cmd.ErrOrStderr()); err != nil {
				return usageError{err}
			}
			if cfg.Admin.Token, err = readToken(token); err != nil {
				return usageError{err}
			}
			if alone {
				return serveBare(cmd.Context(), cmd.OutOrStdout(), cfg)
			}
			return serve(cmd.Context(), cmd.OutOrStdout(), cfg, load)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringArrayVar(&cfg.Addresses, "addr", []string{"127.0.0.1:7000"},
		"`address` to listen on: host:port, or unix:///path; may be set several times")
	flags.addAll(cmd, time.Minute)
	cmd.Flags().StringVar(&file, "limits", "",
		"`file` with limits, a line for each of the flags above such as \"read-timeout 30s\";\nit wins over them, and # begins a comment; SIGHUP reads it anew, and applies it to live connections")
	addServerFlags(cmd, &cfg)
	cmd.Flags().BoolVar(&alone, "bare", false, "run gnet alone, without the reaper and all that is above, to compare")
	cmd.Flags().StringVar(&cfg.Admin.Addr, "admin", "",
		"`address` of a live page, metrics and probes, such as 127.0.0.1:7080; off if empty.\nOne that others can reach needs a token")
	cmd.Flags().StringVar(&token, "admin-token-file", "", "`file` with the token that those need who change something there; without it nobody can")
	cmd.Flags().BoolVar(&cfg.Admin.Profiles, "admin-pprof", false, "show profiles at /debug/pprof/ of --admin")
	logs.add(cmd)
	return cmd
}

// addServerFlags adds the flags of a server that are not about who is dead.
func addServerFlags(cmd *cobra.Command, cfg *server.Config) {
	cmd.Flags().IntVar(&cfg.NumEventLoop, "loops", 0, "number of event loops; 0 is one per CPU")
	cmd.Flags().IntVar(&cfg.MaxConnections, "max-connections", 0,
		"limit of connections, from 15/16 of which on the longest idle make room;\n0 is as many as the limit of descriptors allows")
	cmd.Flags().IntVar(&cfg.Sources.Connections, "max-per-source", 0, "limit of connections of one IPv4 address or IPv6 /64")
	cmd.Flags().IntVar(&cfg.Sources.Rate, "source-rate", 0, "limit of connections that one of these opens in a second")
	cmd.Flags().IntVar(&cfg.AcceptRate, "accept-rate", 0, "limit of connections that come in a second")
	cmd.Flags().DurationVar(&cfg.PressureTimeout, "pressure-timeout", 0,
		"shorten idle timeouts down to this while connections, descriptors or memory run short")
	cmd.Flags().BoolVar(&cfg.OneAcceptor, "one-acceptor", false, "accept in one goroutine for all loops")
	cmd.Flags().BoolVar(&cfg.ReusePort, "share-port", false, "let other processes listen on the same port")
	cmd.Flags().BoolVar(&cfg.Restart, "restart", false, "start another engine when one has died")
	cmd.Flags().DurationVar(&cfg.Drain.Delay, "drain-delay", 0, "when told to stop, go on for so long")
	cmd.Flags().DurationVar(&cfg.Drain.Spread, "drain-spread", 0, "then close idle connections evenly over so long")
	cmd.Flags().DurationVar(&cfg.Drain.Timeout, "drain-timeout", 0, "and busy ones up to so long after the delay; 0 is twice --drain-spread")
}

func serve(ctx context.Context, out io.Writer, cfg server.Config, load func() (idle.Config, error)) error {
	signals, ignore := hangups()
	defer ignore()
	handler := &echo{}
	cfg.Handler = handler
	started := false
	cfg.OnStarted = func(s *server.Server) {
		started = true
		n, why := s.Limit()
		fmt.Fprintf(out, "listening on %s, %s, at most %d connections (%s); Ctrl-C stops\n",
			list(s.Addrs()), describe(s.Reaper().Config()), n, why)
		if addr := s.AdminAddr(); addr != nil {
			fmt.Fprintf(out, "admin on http://%s/\n", addr)
		}
	}
	srv, err := server.New(cfg)
	if err != nil {
		return usageError{err}
	}
	handler.reaper = srv.Reaper()
	reloading, stopReloading := context.WithCancel(context.Background()) // until after the drain
	var loads sync.WaitGroup
	loads.Go(func() { reload(reloading, out, srv.Reaper(), signals, load) })
	if cfg.Drain != (server.Drain{}) {
		defer context.AfterFunc(ctx, func() {
			fmt.Fprintln(out, "stopping: connections are closed little by little; Ctrl-C again stops at once")
		})()
	}
	err = srv.RunUntilSignal(ctx)
	stopReloading()
	loads.Wait()
	if started {
		fmt.Fprintln(out, sumUp(srv))
	}
	return err
}

// list joins addresses.
func list(addrs []net.Addr) string {
	var all []string
	for _, addr := range addrs {
		all = append(all, addr.String())
	}
	return strings.Join(all, " and ")
}

// sumUp says what a server has done.
func sumUp(srv *server.Server) string {
	s, load := srv.Reaper().Stats(), srv.Stats()
	sum := fmt.Sprintf("stopped: %d connections, %d messages, %s", s.Opened, s.Reads, sumUpReaped(s))
	if s.Lateness.Count > 0 {
		sum += fmt.Sprintf(", mean %v late", s.Lateness.Mean().Round(time.Millisecond))
	}
	if n := load.Rejected.Total(); n > 0 {
		sum += fmt.Sprintf(", %d rejected (%d of one source, %d for the accept rate, %d without descriptors, %d above the limit)",
			n, load.Rejected.Source, load.Rejected.AcceptRate, load.Rejected.NoDescriptors, load.Rejected.MaxConnections)
	}
	if load.Pauses > 0 {
		sum += fmt.Sprintf(", accepting paused %d times", load.Pauses)
	}
	if load.Restarts > 0 {
		sum += fmt.Sprintf(", %d restarts", load.Restarts)
	}
	return sum
}

// sumUpReaped says how many connections were reaped, and why.
func sumUpReaped(s idle.Stats) string {
	counts, verb := s.Reaped, "reaped"
	if s.Observed.Total() > 0 {
		counts, verb = s.Observed, "would have been reaped"
	}
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[reason]; n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %v", n, reason))
		}
	}
	sum := fmt.Sprintf("%d %s", counts.Total(), verb)
	if len(reasons) > 0 {
		sum += " (" + strings.Join(reasons, ", ") + ")"
	}
	return sum
}
