// Command alternatives measures the ways to find idle connections that docs/alternatives.md
// compares.
//
//	go run . --help
//
// It is a module of its own because it needs gnet, unlike the other benchmarks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// childVerb is the hidden first argument of a process that measures one subject, or serves as one.
const childVerb = "child"

// childTimeout bounds one measurement.
const childTimeout = 60 * time.Second

func main() {
	if len(os.Args) == 3 && os.Args[1] == childVerb {
		os.Exit(childMain(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the flags of the command line.
type options struct {
	quick bool
	runs  int
	out   string
}

// run is the program without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("alternatives", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.quick, "quick", false, "few connections, short times, one round, to standard output: only checks that everything works")
	flags.IntVar(&o.runs, "runs", 3, "`number` of rounds; the tables show medians over them")
	flags.StringVar(&o.out, "out", "../results/alternatives.md", "`file` to write the tables to; - is standard output")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 || o.runs < 1 {
		fmt.Fprintln(stderr, "alternatives: bad arguments. Run with --help for usage.")
		return 2
	}
	if o.quick {
		o.runs, o.out = 1, "-"
	}
	began := time.Now()
	r := newRecord(o)
	if err := r.measure(ctx, o, stderr); err != nil {
		fmt.Fprintf(stderr, "alternatives: %v\n", err)
		return 1
	}
	fmt.Fprintf(stderr, "measured in %v\n", time.Since(began).Round(time.Second))
	if o.out == "-" {
		fmt.Fprint(stdout, r.markdown())
		return 0
	}
	if err := os.WriteFile(o.out, []byte(r.markdown()), 0o644); err != nil {
		fmt.Fprintf(stderr, "alternatives: %v\n", err)
		return 1
	}
	fmt.Fprintf(stderr, "wrote %s\n", o.out)
	return 0
}

// A job is the work of a child.
type job struct {
	Subject string `json:"subject"`
	TCP     bool   `json:"tcp"` // with connections, instead of in memory
	N       int    `json:"n"`

	Touch     time.Duration `json:"touch"`     // time for touches at full speed
	Hold      time.Duration `json:"hold"`      // time for which silent connections are held
	Heartbeat time.Duration `json:"heartbeat"` // time with one heartbeat per connection and second
	Timeout   time.Duration `json:"timeout"`   // of connections that become silent
}

func newJob(quick, tcp bool, subject string) job {
	j := job{
		Subject: subject, TCP: tcp, N: 100_000,
		Touch: 300 * time.Millisecond, Hold: 2 * time.Second, Heartbeat: 2 * time.Second, Timeout: 2 * time.Second,
	}
	if tcp {
		// The first heartbeats come within a second after Hold. Until then the connections are
		// silent.
		j.N, j.Hold, j.Timeout = 4_000, 1500*time.Millisecond, 4*time.Second
	}
	if quick {
		j.N, j.Touch, j.Hold, j.Heartbeat, j.Timeout = 200, 20*time.Millisecond, 100*time.Millisecond, time.Second, 2500*time.Millisecond
	}
	return j
}

// metrics are the results of one run, by name.
type metrics map[string]float64

func childMain(arg string) int {
	time.AfterFunc(childTimeout+10*time.Second, func() { os.Exit(1) }) // if the parent has died
	var j job
	err := json.Unmarshal([]byte(arg), &j)
	if err == nil && j.TCP {
		err = serve(j, os.Stdin, os.Stdout)
	} else if err == nil {
		var m metrics
		if m, err = measureKeeper(j); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(m)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// command returns a child that is ready to be started.
func command(ctx context.Context, j job) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, childVerb, string(arg))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	return cmd, nil
}

// do measures one subject once, in a process of its own.
func do(ctx context.Context, j job) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	cmd, err := command(ctx, j)
	if err != nil {
		return nil, err
	}
	if j.TCP {
		return drive(j, cmd)
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", j.Subject, err)
	}
	var m metrics
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", j.Subject, err)
	}
	return m, nil
}
