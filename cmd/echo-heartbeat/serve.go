package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/idle"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

// newServe returns the command serve, and catches SIGHUP from now on. The caller stops that.
func newServe() (cmd *cobra.Command, hangups *settings.Watcher[idle.Config]) {
	var (
		cfg   = server.Config{Addresses: []string{"127.0.0.1:7000"}}
		logs  logFlags
		alone bool
	)
	cmd = &cobra.Command{
		Use:   "serve",
		Short: "Run an echo server that reaps idle connections",
		Long: `Run an echo server that reaps idle connections.

The server answers a line PING with PONG and echoes everything else byte for byte. A message is a line, and the handshake is
the first line. When a connection exceeds a limit, the server sends a line with the reason and closes it. A limit of 0 is off.
Try it with: nc 127.0.0.1 7000

Without --max-connections the number of connections is limited by the descriptors that the process may open.

SIGHUP reads the file of --limits again. Ctrl-C or SIGTERM stops the server, after a drain if --drain-spread is set; a second
one stops it at once.
The server goes on if nothing reads its output: lines that find no room are dropped and counted.
Exit codes: 0 stopped, 1 failed, 2 wrong flags.`,
	}
	cmd.Flags().SortFlags = false
	flags := flag.NewFlagSet(cmd.Use, flag.ContinueOnError)
	cfg.AddFlags(flags)
	cmd.Flags().AddGoFlag(flags.Lookup("addr"))
	limits := addLimits(cmd, idle.Config{
		ReadTimeout: time.Minute, KeepClosed: server.KeepClosed, OutputLimit: idle.OutputLimit{Hard: outputLimit},
	})
	cmd.Flags().StringVar(&limits.File, "limits", "",
		"`file` with limits, one flag of the above per line, such as \"read-timeout 30s\"; # begins a comment.\n"+
			"The file wins over flags. SIGHUP reads it again, for live connections as well")
	cmd.Flags().AddGoFlagSet(flags)
	cmd.Flags().BoolVar(&alone, "bare", false, "run gnet without the reaper, for comparison: only --addr, --share-port, --loops and the flags of the log have an effect")
	logs.add(cmd)
	hangups = limits.Watch()
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		signal.Ignore(syscall.SIGPIPE) // the reader of the output may end before the server
		out := logging.NewWriter(cmd.OutOrStdout())
		defer out.Flush()
		if err := limits.Load(&cfg.Idle); err != nil {
			return usageError{fmt.Errorf("--limits: %w", err)}
		}
		complete(&cfg.Idle)
		if cfg.Logger, err = logs.logger(cmd.ErrOrStderr()); err != nil {
			return usageError{err}
		}
		if alone {
			hangups.Stop()
			return serveBare(cmd.Context(), out, cfg)
		}
		return serve(cmd.Context(), out, cfg, limits, hangups)
	}
	return cmd, hangups
}

// serve runs the server until ctx is done, and applies new limits on SIGHUP.
func serve(
	ctx context.Context, out io.Writer, cfg server.Config, limits *settings.Source[idle.Config], hangups *settings.Watcher[idle.Config],
) error {
	handler := &echo{}
	cfg.Handler = handler
	ready, isReady := context.WithCancel(context.Background())
	defer isReady()
	tell := func(state string) {
		if err := notify(state); err != nil {
			cfg.Logger.Warn("systemd was not notified", "state", state, "error", err)
		}
	}
	cfg.OnStarted = func(s *server.Server) {
		text := "listening on " + list(s.Addrs())
		if !cfg.Logger.Enabled(context.Background(), slog.LevelInfo) { // else the log has them
			text += ", " + limits.Describe(s.Reaper().Config())
		}
		n, why := s.Limit()
		fmt.Fprintf(out, "%s, at most %d connections (%s); Ctrl-C stops\n", text, n, why)
		if addr := s.AdminAddr(); addr != nil {
			fmt.Fprintf(out, "admin on http://%s/\n", addr)
		}
		tell("READY=1")
		isReady()
	}
	srv, err := server.New(cfg)
	if err != nil {
		return err
	}
	handler.reaper = srv.Reaper()
	reloadCtx, stopReloading := context.WithCancel(context.Background()) // SIGHUP works during a drain
	var reloading sync.WaitGroup
	reloading.Go(func() {
		select {
		case <-ready.Done():
			reload(reloadCtx, out, srv, limits, hangups, tell)
		case <-reloadCtx.Done():
		}
	})
	stopping := sync.OnceFunc(func() { tell("STOPPING=1") })
	defer context.AfterFunc(ctx, func() {
		stopping()
		if cfg.Drain != (server.Drain{}) {
			fmt.Fprintln(out, "stopping: draining connections; Ctrl-C again stops at once")
		}
	})()
	err = srv.RunUntilSignal(ctx)
	stopping()
	stopReloading()
	reloading.Wait()
	if ready.Err() != nil {
		fmt.Fprintln(out, summary(srv))
	}
	return err
}

// list joins addresses, as --addr takes them.
func list(addrs []net.Addr) string {
	var all []string
	for _, addr := range addrs {
		text := addr.String()
		if addr.Network() == "unix" {
			text = "unix://" + text
		}
		all = append(all, text)
	}
	return strings.Join(all, " and ")
}

// reload applies new limits to a server on each SIGHUP, until ctx is done.
func reload(
	ctx context.Context, out io.Writer, srv *server.Server, limits *settings.Source[idle.Config], hangups *settings.Watcher[idle.Config], tell func(state string),
) {
	update := func(edit func(*idle.Config)) error {
		return srv.Update(func(cfg *idle.Config) {
			edit(cfg)
			complete(cfg)
		})
	}
	hangups.Run(ctx, update, func(err error) {
		tell("RELOADING=1")
		srv.Reloaded(err)
		status := "reloaded: " + limits.Describe(srv.Reaper().Config())
		if err != nil {
			status = "not reloaded: " + settings.Explain(err, "")
		}
		fmt.Fprintln(out, status)
		tell("READY=1\nSTATUS=" + status)
	})
}

// summary returns the counts of a server that has stopped.
func summary(srv *server.Server) string {
	s, load := srv.Reaper().Stats(), srv.Stats()
	text := fmt.Sprintf("stopped: %d connections, %d reads, %s", s.Opened, s.Reads, reapSummary(s))
	if n := s.Lateness.Count; n > 0 {
		mean := s.Lateness.Sum / time.Duration(n)
		text += fmt.Sprintf(", mean %v late", mean.Round(time.Millisecond))
	}
	if n := load.Rejected.Total(); n > 0 {
		text += fmt.Sprintf(", %d rejected (%d of one source, %d for the accept rate, %d above the limit)",
			n, load.Rejected.Source, load.Rejected.AcceptRate, load.Rejected.MaxConnections)
	}
	if load.Pauses > 0 {
		text += fmt.Sprintf(", accepting paused %d times", load.Pauses)
	}
	return text
}

// reapSummary returns the number of reaped connections, by reason.
func reapSummary(s idle.Stats) string {
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
	text := fmt.Sprintf("%d %s", counts.Total(), verb)
	if len(reasons) > 0 {
		text += " (" + strings.Join(reasons, ", ") + ")"
	}
	return text
}
