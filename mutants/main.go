// Command mutants changes the repository in many small ways, one at a time, and runs the tests
// against each change. A change that no test detects survives: a test is missing.
//
//	go run . [-run regexp] [-timeout duration] [-least percent] [-test command]...
//
// The changes are listed in mutants.txt. They are applied to a copy of the repository, never to the
// working tree. The exit code is 1 if less than -least percent of the mutants were killed, and 2
// after an error: a text that does not occur exactly once, a mutant that does not compile, or tests
// that fail without a change.
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

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var c workCopy
	list := flags.String("list", "mutants.txt", "file with the mutants")
	root := flags.String("root", "..", "the repository")
	only := regexp.MustCompile("")
	flags.TextVar(only, "run", only, "run only mutants with a file and description that match this regular expression")
	flags.DurationVar(&c.timeout, "timeout", 6*time.Minute, "time of one test command; a mutant that takes longer is killed")
	least := flags.Float64("least", 95, "percentage of the mutants that must be killed")
	flags.Func("test", "test command; {package} stands for the package of the mutant; may be repeated", func(s string) error {
		c.tests = append(c.tests, s)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return 2
	}
	killed, of, err := c.tryAll(*list, *root, only, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
	}
	percent := 100 * float64(killed) / float64(max(of, 1))
	fmt.Fprintf(stdout, "%d of %d mutants killed: %.1f %%\n", killed, of, percent)
	switch {
	case err != nil:
		return 2
	case percent < *least:
		return 1
	}
	return 0
}

// tryAll copies the repository, and tries the mutants of a list that match a regular expression.
func (c *workCopy) tryAll(list, root string, only *regexp.Regexp, stdout io.Writer) (killed, of int, err error) {
	some, err := chosen(list, root, only)
	if err != nil {
		return 0, 0, err
	}
	if c.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(c.dir)
	if err := os.CopyFS(c.dir, os.DirFS(root)); err != nil {
		return 0, 0, fmt.Errorf("copy of %s: %w", root, err)
	}
	if err := c.checkTests(some); err != nil {
		return 0, 0, err
	}
	var errs []error
	for _, m := range some {
		began := time.Now()
		by, err := c.try(m)
		switch {
		case err != nil: // the others are tried all the same
			errs = append(errs, err)
		case by == "":
			fmt.Fprintf(stdout, "SURVIVED %v\n", m)
		default:
			killed++
			fmt.Fprintf(stdout, "killed   %v (after %.1f s by %s)\n", m, time.Since(began).Seconds(), by)
		}
	}
	return killed, len(some), errors.Join(errs...)
}

// chosen returns the mutants of a list that match a regular expression. All mutants of the list
// must be changes of the code.
func chosen(list, root string, only *regexp.Regexp) (some []mutant, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	all, err := parse(string(text))
	for _, m := range all {
		if _, _, err := m.mutate(root); err != nil {
			return nil, err
		}
		if only.MatchString(m.String()) {
			some = append(some, m)
		}
	}
	return some, err
}
