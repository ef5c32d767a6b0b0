// Echo-heartbeat shows the idle-connection reaper at work: an echo server that reaps idle
// connections, a client that sends heartbeats, and a demo of both in one process.
//
//	echo-heartbeat serve   --addr 127.0.0.1:7000 --read-timeout 60s
//	echo-heartbeat connect --addr 127.0.0.1:7000 --heartbeat 20s
//	echo-heartbeat demo
//	echo-heartbeat version
//
// The exit code is 0 after an orderly end, 1 after a failure and 2 for wrong flags.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/internal/commandline"
	"github.com/idlewheel/idlewheel/internal/logging"
	"github.com/idlewheel/idlewheel/internal/version"
	"github.com/idlewheel/idlewheel/server"
	"github.com/idlewheel/idlewheel/settings"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// A usageError is a mistake in the flags.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:     "echo-heartbeat",
		Short:   "An echo server that closes dead connections, and clients for it",
		Version: describe(buildInfo(), version.Of(version.Gnet)),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("a command is missing: serve, connect, demo or version")
		},
	}
	root.SetVersionTemplate("{{.Version}}")
	serve, hangups := newServe()
	defer hangups.Stop()
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		if cmd != serve {
			hangups.Stop()
		}
		// Before, a signal ends the process: the flags may read a token from a FIFO.
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the process, unless a server waits for it
		cmd.SetContext(ctx)
	}
	root.AddCommand(serve, newConnect(), newDemo(), newVersion())
	cmd, err := commandline.Execute(ctx, root, args, stdout, stderr, func(err error) error { return usageError{err} })
	if err == nil {
		return 0
	}
	errs := logging.NewWriter(stderr)
	defer errs.Flush()
	prefix := "--"
	if limits := cmd.Flag("limits"); limits != nil && limits.Changed { // of the file
		prefix = ""
	}
	text := fmt.Sprintf("%s: %s", cmd.CommandPath(), settings.Explain(err, prefix))
	if wrongFlags(err) {
		fmt.Fprintf(errs, "%s (see %s --help)\n", text, cmd.CommandPath())
		return 2
	}
	fmt.Fprintln(errs, text)
	return 1
}

// wrongFlags reports whether the flags are to blame for an error. The host of an address is looked
// up when the address is used.
func wrongFlags(err error) bool {
	usage := errors.As(err, new(usageError))
	unknownHost := errors.As(err, new(*net.DNSError))
	badAddress := errors.As(err, new(*net.AddrError))
	return usage || unknownHost || badAddress || errors.Is(err, server.ErrBadConfig)
}
