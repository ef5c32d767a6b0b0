// Loadtest holds many thousand connections to any TCP echo server and breaks them in every way. It measures what a reaper of idle
// connections is about: how late it closes the dead, whether it ever closes the living, and how these fare meanwhile.
//
//	loadtest hold   -c 100k                         open, heartbeat, fall silent
//	loadtest storm  -c 10k --living 200             all fall silent at once
//	loadtest stall  -c 10k                          the server is stopped for longer than its timeout
//	loadtest mix | churn | attack NAME | echo       see --help of each
//	loadtest doctor -c 1m                           can this machine do it?
//	loadtest merge  a.json b.json                   one result of several machines
//
// Without a --target it builds and launches cmd/echo-heartbeat. It exits with 0 when it ended as it should, 1 when something failed or an
// expectation does not hold, 2 when its flags are wrong, 3 when the machine cannot do it, and 130 when it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/processes"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitCannot      = 3
	exitInterrupted = 130
)

func main() {
	runtime.LockOSThread() // the children die with the thread that has started them: let it be the one that stays
	if len(os.Args) == 2 && os.Args[1] == processes.ClientVerb {
		if err := processes.RunClient(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "loadtest worker:", err)
			os.Exit(exitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type (
	// usageError is a mistake in the flags.
	usageError struct{ error }
	// cannotError is why the machine cannot do what it is asked for.
	cannotError struct{ error }
)

// errInterrupted is returned by a run that somebody has ended.
var errInterrupted = errors.New("interrupted")

// execute executes the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "loadtest",
		Short:         "Hold 100,000 connections to an echo server, break them in every way, and see what its reaper does",
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("say what to do: hold, storm, stall, mix, churn, attack, echo, merge or doctor")}
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newHold(), newStorm(), newStall(), newMix(), newChurn(), newAttack(), newEcho(), newMerge(), newDoctor())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	hint, code := "", exitFailed
	switch {
	case errors.Is(err, errInterrupted):
		code = exitInterrupted
	case isError[cannotError](err):
		code = exitCannot
	case isError[usageError](err) || cmd == root: // what the root says is about its arguments: an unknown verb
		hint, code = fmt.Sprintf(" (see %s --help)", cmd.CommandPath()), exitUsage
	}
	fmt.Fprintf(stderr, "%s: %s%s\n", cmd.CommandPath(), strings.ReplaceAll(err.Error(), "\n", "; "), hint)
	return code
}

func isError[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
