package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/page"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// summarize writes the result as tables.
func summarize(out io.Writer, r *result.Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\n%s\n", r.Sentence())
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	fmt.Fprintln(w)
	counts(w, r)
	for _, reason := range r.Failures.Reasons() {
		fmt.Fprintf(w, "  not opened: %s: %s\n", format.Count(r.Failures[reason]), reason)
	}
	quantiles(w, r)
	if c := r.Costs; c != nil {
		fmt.Fprintf(w, "\ncost per connection\tclient %.0f B", c.ClientBytes)
		if c.BothEnds {
			fmt.Fprintf(w, ", server %.0f B", c.ServerBytes)
			if c.BareBytes > 0 {
				fmt.Fprintf(w, " (gnet %.0f, the reaper %.0f)", c.BareBytes, c.ServerBytes-c.BareBytes)
			}
			fmt.Fprintf(w, ", kernel of the whole machine %.0f B for both ends; CPU while held: server %s, client %s",
				c.KernelBytes, format.Duration(c.ServerCPU), format.Duration(c.ClientCPU))
		}
		fmt.Fprintln(w)
	}
	if len(r.Expectations) > 0 {
		fmt.Fprintln(w, "\nexpected\twant\tgot\t")
		for _, e := range r.Expectations {
			verdict := "FAILED"
			if e.OK {
				verdict = "ok"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Want, e.Got, verdict)
		}
	}
	fmt.Fprintf(w, "\n%s\n", r.Verdict.Outcome)
	for _, cause := range r.Verdict.Causes {
		fmt.Fprintf(w, "%s: %s\n", r.Verdict.Outcome, cause)
	}
	for _, remark := range r.Verdict.Remarks {
		fmt.Fprintf(w, "remark: %s\n", remark)
	}
	if r.Interrupted {
		fmt.Fprintln(w, "\ninterrupted: the figures cover the time until then")
	}
}

// counts writes the counts of each group.
func counts(w io.Writer, r *result.Result) {
	head := "group\t"
	for _, c := range result.Counters {
		if c.Main {
			head += c.Name + "\t"
		}
	}
	fmt.Fprintln(w, head+"remarks\t")
	for i := range r.Groups {
		row, remarks := r.Groups[i].Name+"\t", []string(nil)
		for _, c := range result.Counters {
			n := format.Count(c.Of(&r.Groups[i]))
			switch {
			case c.Main:
				row += n + "\t"
			case n != "0":
				remarks = append(remarks, n+" "+c.Name)
			}
		}
		fmt.Fprintln(w, row+strings.Join(remarks, ", ")+"\t")
	}
}

// quantiles writes the quantiles of all durations.
func quantiles(w io.Writer, r *result.Result) {
	for i, of := range r.Times() {
		if i == 0 {
			fmt.Fprintln(w, "\n\tcount\tp50\tp99\tp99.9\tmax\t")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", of.Name, format.Count(of.Count()), of.Text(0.5), of.Text(0.99), of.Text(0.999), of.Text(1))
	}
}

// toStdout is the name of a file that stands for standard output.
const toStdout = "-"

// report judges a result, writes it in every requested form, and returns an error according to the
// exit code.
func (o *options) report(cmd *cobra.Command, res *result.Result) error {
	res.Expectations = slices.Clone(o.expected)
	res.Judge()
	err := errors.Join(write(cmd, o.out, res.Write), write(cmd, o.html, func(w io.Writer) error { return page.Write(w, res) }))
	summarize(textTo(cmd, o.out, o.html), res)
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
