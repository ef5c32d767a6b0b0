// Echo-heartbeat shows the idle-connection reaper at work: a server that echoes and reaps, a client that sends heartbeats,
// and a show of both in one process.
//
//	echo-heartbeat serve   --addr 127.0.0.1:7000 --read-timeout 60s
//	echo-heartbeat connect --addr 127.0.0.1:7000 --heartbeat 20s
//	echo-heartbeat demo
//
// It exits with 0 when it ended as it should, with 1 when something failed, and with 2 when its flags are wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError is a mistake in the flags.
type usageError struct{ error }

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:                "echo-heartbeat",
		Short:              "See dead connections go: an echo server with an idle-connection reaper, and its clients",
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true,
		Args:               cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{errors.New("say what to do: serve, connect or demo")}
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newServe(), newConnect(), newDemo())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var usage usageError
	if errors.As(err, &usage) || cmd == root { // what the root says is about its arguments: an unknown command
		fmt.Fprintf(stderr, "%s: %s (see %[1]s --help)\n", cmd.CommandPath(), oneLine(err))
		return 2
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), oneLine(err))
	return 1
}

// oneLine joins the lines of an error, and names flags where the packages below name fields.
func oneLine(err error) string {
	return strings.NewReplacer(append([]string{
		"\n", "; ",
		"idle: ", "",
		"server: ", "",
		"Config.Addresses", "--addr",
		"Config.NumEventLoop", "--loops",
		"Config.MaxConnections", "--max-connections",
		"Config.Sources.Connections", "--max-per-source",
		"Config.Sources.Rate", "--source-rate",
		"Config.AcceptRate", "--accept-rate",
		"Config.PressureTimeout", "--pressure-timeout",
		"Config.ReusePort and Config.OneAcceptor are", "--share-port and --one-acceptor are",
		"Config.ReusePort is", "--share-port is",
		"leave OneAcceptor off", "leave --one-acceptor off",
		"Config.Admin.Addr", "--admin",
		"Config.Admin.Token", "--admin-token-file",
		"Config.Admin: admin: Config.Token has", "the token of --admin-token-file has",
		"Config.Admin has no Addr", "--admin is not set",
		"for Config.Admin", "for --admin",
		"Timeout not below Spread", "--drain-timeout not below --drain-spread",
		"Config.Drain is", "the drain (--drain-delay, --drain-spread, --drain-timeout) is",
	}, flagNames...)...).Replace(err.Error())
}

// noArgs refuses arguments that are not flags.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}
