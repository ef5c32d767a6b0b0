// Loadtest holds many thousand connections to any TCP echo server and breaks them in many ways. It
// measures what matters about a reaper of idle connections: how late it closes dead connections,
// whether it closes living ones, and how its work affects their latency.
//
//	loadtest hold   -c 100k                         open, send heartbeats, stop sending
//	loadtest storm  -c 10k --living 200             all stop sending at once
//	loadtest outage -c 10k                          the server stops for longer than its timeout
//	loadtest mix | churn | attack NAME | echo       see --help of each
//	loadtest doctor -c 1m                           check the limits of this machine
//	loadtest witness --port 7000                    watch a server in production
//	loadtest path --target example.com:7            find out how long a path keeps an idle connection
//	loadtest merge  a.json b.json                   merge the results of several machines
//
// Without a --target it builds and launches cmd/echo-heartbeat. The exit code is 0 if the result is
// passed, 1 if it is failed, 2 for wrong flags, 3 if it is not valid or the limits of this machine
// are too low, and 130 if the run was interrupted.
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

	"github.com/idlewheel/idlewheel/internal/commandline"
	"github.com/idlewheel/idlewheel/internal/version"
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
	runtime.LockOSThread() // children die with the thread that started them; the main thread stays
	if len(os.Args) == 2 && os.Args[1] == processes.ClientVerb {
		if err := processes.RunClient(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "loadtest client:", err)
			os.Exit(exitFailed)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// endingSignals are the signals that end a run with a report, and continue a stopped server. Under
// nohup SIGHUP stays ignored.
func endingSignals() []os.Signal {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		ending = append(ending, syscall.SIGHUP)
	}
	return ending
}

// An exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

// errInterrupted is returned by a run that ended on a signal.
var errInterrupted = exitError{errors.New("interrupted"), exitInterrupted}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:     "loadtest",
		Short:   "Hold 100,000 connections to an echo server, break them, and measure its reaper",
		Version: version.Of(version.Idlewheel),
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("name a verb: hold, storm, outage, mix, churn, attack, echo, witness, path, merge or doctor")
		},
	}
	root.AddCommand(hold.command(), storm.command(), outage.command(), newMix(), churn.command(), newAttack(), echo.command(),
		newMerge(), newDoctor(), newWitness(), newPath())
	cmd, err := commandline.Execute(ctx, root, args, stdout, stderr, func(err error) error { return exitError{err, exitUsage} })
	if err == nil {
		return 0
	}
	of, hint := exitError{code: exitFailed}, ""
	if errors.As(err, &of); of.code == exitUsage {
		hint = fmt.Sprintf(" (see %s --help)", cmd.CommandPath())
	}
	fmt.Fprintf(stderr, "%s: %s%s\n", cmd.CommandPath(), strings.ReplaceAll(err.Error(), "\n", "; "), hint)
	return of.code
}
