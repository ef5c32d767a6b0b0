package main

import (
	"cmp"
	_ "embed" // for the template
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/page"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

//go:embed summary.txt
var summaryText string

var summary = template.Must(template.New("summary").Funcs(template.FuncMap{
	"counters": func() []result.Counter { return result.Counters },
	"of":       func(c result.Counter, g result.Group) uint64 { return c.Of(&g) },
	"count":    format.Count[uint64],
	"bytes":    func(v float64) string { return fmt.Sprintf("%.0f", v) },
	"duration": format.Duration,
}).Parse(summaryText))

// summarize writes the result as tables.
func summarize(out io.Writer, r *result.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	return cmp.Or(summary.Execute(w, r), w.Flush())
}

func newMerge() *cobra.Command {
	var o options
	var expected int
	cmd := &cobra.Command{
		Use: "merge FILE...", Short: "Merge the results of several machines", Args: cobra.ArbitraryArgs,
		Long: `Merge the results of several machines that loaded the same target at the same time (--begin-at), written with --out.
A file may also be the log of a run with --out /dev/stdout.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var p problems
			o.checkReport(&p)
			p.require(len(args) > 0, "name the files written with --out")
			p.require(expected == 0 || expected == len(args), "--expect-results is %d: got %d files", expected, len(args))
			var all []*result.Result
			for _, name := range args {
				r, err := result.Read(name)
				p.add(err)
				all = append(all, r)
			}
			if err := p.err(); err != nil {
				return err
			}
			sum, err := result.Merge(all)
			if err != nil {
				return exitError{err, exitUsage}
			}
			if len(o.expected) == 0 && slices.ContainsFunc(all, func(r *result.Result) bool { return len(r.Expectations) > 0 }) {
				sum.Notes = append(sum.Notes, "the expectations of the results are not judged here: --expect sets new ones")
			}
			return o.report(cmd, sum)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&expected, "expect-results", 0, "exact `number` of files; 0 is any number")
	o.addReport(cmd)
	return cmd
}

// toStdout is the name of a file that stands for standard output.
const toStdout = "-"

// report judges a result, writes it in every requested form, and returns an error according to the
// exit code.
func (o *options) report(cmd *cobra.Command, res *result.Result) error {
	res.Expectations = slices.Clone(o.expected)
	res.Judge()
	err := errors.Join(
		write(cmd, o.out, res.Write),
		write(cmd, o.html, func(w io.Writer) error { return page.Write(w, res) }),
		summarize(textTo(cmd, o.out, o.html), res),
	)
	switch {
	case res.Interrupted:
		return errors.Join(err, errInterrupted)
	case res.Verdict.Outcome == result.Failed:
		return errors.Join(err, errors.New("failed; the summary says why"))
	case res.Verdict.Outcome == result.NotValid:
		return errors.Join(err, exitError{errors.New("not valid; the summary says why"), exitCannot})
	}
	return err
}

// write writes a file, unless the name is empty. Files come before the text on stdout or stderr: a
// closed pipe ends the process.
func write(cmd *cobra.Command, name string, content func(io.Writer) error) error {
	switch name {
	case "":
		return nil
	case toStdout:
		return content(cmd.OutOrStdout())
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content(out), out.Close())
}

// textTo returns stdout, or stderr if one of the files is stdout.
func textTo(cmd *cobra.Command, files ...string) io.Writer {
	if slices.Contains(files, toStdout) {
		return cmd.ErrOrStderr()
	}
	return cmd.OutOrStdout()
}

// checkTarget adds the faults of the target as a whole. Only groups that expect an echo count.
func (r *run) checkTarget() {
	var all result.Group
	for i := range r.res.Groups {
		if load.Echoes(r.res.Groups[i].Behaviour) {
			all.Add(&r.res.Groups[i])
		}
	}
	switch {
	case r.failed || r.res.Interrupted || all.Opened == 0 || all.Answers > 0:
	case all.Garbled+all.Told > 0:
		r.fail("the target does not echo what it receives: it is not an echo server")
	case all.Lost+all.Early >= all.Opened:
		r.fail("the target closes every connection")
	case all.Messages > 0:
		r.fail("the target never answers: it is not an echo server, or it hangs")
	}
}
