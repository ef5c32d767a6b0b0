// Command mutants changes the repository in many small ways, one at a time, and runs the tests
// against each change. A change that no test detects survives: a test is missing.
//
//	go run . [-run regexp] [-timeout duration] [-least percent] [-test command]...
//
// The changes are listed in mutants.txt. They are applied to a copy of the tracked files, never to
// the working tree. The exit code is 1 if less than -least percent of the mutants were killed, and
// 2 after an error: a text that does not occur exactly once, a mutant that does not compile, or
// tests that fail without a change.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// Exit codes.
const (
	exitOK = iota
	exitSurvivors
	exitError
)

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var tests []string
	list := flags.String("list", "mutants.txt", "file with the mutants")
	root := flags.String("root", "..", "the repository")
	only := flags.String("run", "", "run only mutants with a file and description that match this regular expression")
	timeout := flags.Duration("timeout", 6*time.Minute, "time of one test command; a mutant that takes longer is killed")
	least := flags.Float64("least", 95, "percentage of the mutants that must be killed")
	flags.Func("test", "test command; {package} stands for the package of the mutant; may be repeated", func(s string) error {
		tests = append(tests, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return exitError
	}
	killed, of, err := runAll(*list, *root, *only, tests, *timeout, stdout)
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	percent := 100 * float64(killed) / float64(max(of, 1))
	fmt.Fprintf(stdout, "%d of %d mutants killed: %.1f %%\n", killed, of, percent)
	switch {
	case err != nil:
		return exitError
	case percent < *least:
		return exitSurvivors
	}
	return exitOK
}

func runAll(list, root, only string, tests []string, timeout time.Duration, stdout io.Writer) (killed, of int, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return 0, 0, err
	}
	all, err := parse(string(text))
	if err != nil {
		return 0, 0, err
	}
	matches, err := regexp.Compile(only)
	if err != nil {
		return 0, 0, err
	}
	work, err := newCopy(root, timeout, tests)
	if err != nil {
		return 0, 0, err
	}
	defer work.remove()
	var some []mutant
	for _, m := range all {
		if _, err := work.mutate(m); err != nil { // also mutants that do not run now
			return 0, 0, err
		}
		if matches.MatchString(m.file + ": " + m.description) {
			some = append(some, m)
		}
	}
	if err := work.checkTests(some); err != nil {
		return 0, 0, err
	}
	var errs []error
	for _, m := range some {
		began := time.Now()
		by, err := work.try(m)
		if err != nil { // the others are tried all the same
			errs = append(errs, err)
			continue
		}
		outcome := "SURVIVED"
		if by != "" {
			killed++
			outcome = "killed  "
		}
		fmt.Fprintf(stdout, "%s %s: %s", outcome, m.file, m.description)
		if by != "" {
			fmt.Fprintf(stdout, " (after %.1f s by %s)", time.Since(began).Seconds(), by)
		}
		fmt.Fprintln(stdout)
	}
	return killed, len(some), errors.Join(errs...)
}
