// Command bench compares this module's timers with other libraries and with Netty's
// HashedWheelTimer. It writes tables of their costs.
//
//	go run . --help
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == childVerb {
		os.Exit(childMain(os.Args[2:], os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const usage = `usage: go run . [flags]

Measures timer implementations side by side and writes timers.json (all figures) and timers.md
(tables). Each measurement is a process of its own that takes at most %v. A round with all subjects
takes about twelve minutes. --quick takes about a minute; its figures have no meaning.

Netty takes part if a JDK and Debian's libnetty-java are installed.

flags:
`

const names = `
--only matches a subject, a work and a number, joined by slashes: for example 'wheel|AfterFunc', 'wheel.expiry' or '1000000$'.
subjects: %s
works:    %s

exit codes: 0 done, 1 failed or interrupted, 2 wrong usage
`

// options are the flags of the command line.
type options struct {
	quick  bool
	runs   int
	out    string
	only   *regexp.Regexp
	render bool
}

// run is the program without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\nRun with --help for usage.\n", err)
		return 2
	}
	if err := produce(ctx, o, args, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func parse(args []string, stdout, stderr io.Writer) (options, error) {
	var o options
	var only string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.quick, "quick", false, "small sizes, short times, one round: only checks that everything works")
	flags.IntVar(&o.runs, "runs", 7, "`number` of rounds; the tables show medians over them")
	flags.StringVar(&o.out, "out", "", "`directory` to write to (default results; results-partial with --quick or --only)")
	flags.StringVar(&only, "only", "", "measure only steps that match this `regexp`")
	flags.BoolVar(&o.render, "render", false, "do not measure: make the tables from timers.json")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stdout)
			fmt.Fprintf(stdout, usage, childTimeout)
			flags.PrintDefaults()
			fmt.Fprintf(stdout, names, strings.Join(subjectNames(), ", "), strings.Join(workNames(), ", "))
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.runs < 1 {
		return o, fmt.Errorf("--runs is %d, must be at least 1", o.runs)
	}
	if o.quick && !given(flags, "runs") {
		o.runs = 1
	}
	if o.out == "" {
		o.out = "results"
		if o.quick || only != "" { // keeps the results of a full run
			o.out = "results-partial"
		}
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("--only: %w", err)
	}
	return o, nil
}

func given(flags *flag.FlagSet, name string) bool {
	var found bool
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func subjectNames() []string {
	var list []string
	for _, c := range candidates() {
		list = append(list, c.name)
	}
	return list
}

func workNames() []string {
	var list []string
	for _, w := range works(false) {
		list = append(list, w.name)
	}
	return list
}

// produce measures, or reads an earlier measurement, and writes the results.
func produce(ctx context.Context, o options, args []string, stderr io.Writer) error {
	jsonPath := filepath.Join(o.out, "timers.json")
	if o.render {
		r, err := readRecord(jsonPath)
		if err != nil {
			return err
		}
		return present(r, o.out, stderr)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	r, interrupted := measure(ctx, o, args, stderr)
	if r == nil {
		return interrupted
	}
	if err := r.write(jsonPath); err != nil {
		return err
	}
	if err := present(r, o.out, stderr); err != nil {
		return err
	}
	return interrupted
}

// measure returns the record, also with the error of an interruption if a round was complete.
func measure(ctx context.Context, o options, args []string, stderr io.Writer) (*record, error) {
	r := &record{
		Machine: thisMachine(),
		Command: strings.Join(append([]string{"go run ."}, quoted(args)...), " "),
		Quick:   o.quick,
		Rounds:  o.runs,
		Absent:  map[string]string{},
	}
	var netty nettyProgram
	if wantsNetty(o) {
		var err error
		if netty, err = compileNetty(ctx); err != nil {
			r.Absent[nettyName] = err.Error()
			fmt.Fprintf(stderr, "%s is left out: %v\n", nettyName, err)
		}
		defer netty.close()
	}
	r.Versions = versions(netty)
	m := &measurer{record: r, steps: plan(o.quick, o.only, r.Absent), netty: netty, progress: stderr}
	if len(m.steps) == 0 {
		return nil, errors.New("--only matches nothing that can be measured here")
	}
	began := time.Now()
	if err := m.run(ctx); err != nil && r.Rounds == 0 {
		return nil, errors.New("interrupted in the first round, nothing was written")
	} else if err != nil {
		return r, fmt.Errorf("interrupted, %s was written", plural(r.Rounds, "round"))
	}
	fmt.Fprintf(stderr, "measured in %v\n", time.Since(began).Round(time.Second))
	return r, nil
}

func wantsNetty(o options) bool {
	for _, s := range plan(o.quick, o.only, nil) {
		if s.candidate.netty {
			return true
		}
	}
	return false
}

// present writes the tables.
func present(r *record, dir string, stderr io.Writer) error {
	tables := filepath.Join(dir, "timers.md")
	if err := os.WriteFile(tables, []byte(report(r)), 0o644); err != nil {
		return err
	}
	fmt.Fprintln(stderr, "wrote", tables)
	return nil
}

// quoted returns arguments quoted for a shell.
func quoted(args []string) []string {
	plain := regexp.MustCompile(`^[\w./=:,-]+$`)
	var list []string
	for _, a := range args {
		if !plain.MatchString(a) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		list = append(list, a)
	}
	return list
}
