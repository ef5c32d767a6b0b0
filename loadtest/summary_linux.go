package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/idlewheel/idlewheel/loadtest/internal/load"
	"github.com/idlewheel/idlewheel/loadtest/internal/page"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// grouped formats a number with commas between thousands.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short rounds a duration for the summary.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

// summarize writes the result as tables.
func summarize(out io.Writer, r *result.Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\n%s of %s connections to %s, %s\n", r.Verb, grouped(uint64(r.Setup.Connections)), targets(r), short(r.Took))
	for _, note := range r.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	fmt.Fprintln(w)
	counts(w, r)
	for _, reason := range r.Failures.Reasons() {
		fmt.Fprintf(w, "  not opened: %s: %s\n", grouped(r.Failures[reason]), reason)
	}
	quantiles(w, r)
	if c := r.Costs; c != nil {
		fmt.Fprintf(w, "\ncost per connection\tclient %.0f B", c.ClientBytes)
		if c.BothEnds {
			fmt.Fprintf(w, ", server %.0f B", c.ServerBytes)
			if c.BareBytes > 0 {
				fmt.Fprintf(w, " (gnet %.0f, the reaper %.0f)", c.BareBytes, c.ServerBytes-c.BareBytes)
			}
			fmt.Fprintf(w, ", kernel %.0f B for both ends; CPU while held: server %s, client %s",
				c.KernelBytes, short(c.ServerCPU), short(c.ClientCPU))
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

func targets(r *result.Result) string {
	text := strings.Join(r.Setup.Targets, ", ")
	if n := r.Setup.Servers; n > 0 {
		kind := "echo-heartbeat"
		if r.Setup.Bare {
			kind = "bare gnet"
		}
		text += fmt.Sprintf(" (%d launched, %s)", n, kind)
	}
	return text
}

// counts writes the counts of each group.
func counts(w io.Writer, r *result.Result) {
	fmt.Fprintln(w, "group\trequested\topened\tfalse reaps\treaped\tearly\tkept\tmessages\tanswers\tremarks\t")
	for _, g := range r.Groups {
		var remarks []string
		for _, of := range []struct {
			n    uint64
			what string
		}{
			{g.OpenFailed, "not opened"}, {g.Starved, "starved by this client"}, {g.Garbled, "with a wrong answer"},
			{g.Unanswered, "without an answer"}, {g.Swapped, "swapped answers"}, {g.Doubled, "doubled answers"}, {g.Skipped, "skipped messages"},
			{g.Reset, "reset"}, {g.Told, "with a goodbye"}, {g.Ended, "closed by this client"},
		} {
			if of.n > 0 {
				remarks = append(remarks, grouped(of.n)+" "+of.what)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g.Name, grouped(uint64(g.Connections)), grouped(g.Opened), grouped(g.Lost),
			grouped(g.Reaped), grouped(g.Early), grouped(g.Kept), grouped(g.Messages), grouped(g.Answers), strings.Join(remarks, ", "))
	}
}

// quantiles writes the quantiles of all durations.
func quantiles(w io.Writer, r *result.Result) {
	if total := r.Total(); total.Opened == 0 {
		return
	}
	fmt.Fprintln(w, "\n\tcount\tp50\tp99\tp99.9\tmax\t")
	line := func(name string, h *result.Histogram) {
		if h.Count() > 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", name, grouped(h.Count()), short(h.Quantile(0.5)), short(h.Quantile(0.99)),
				short(h.Quantile(0.999)), short(h.Max()))
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		line(g.Name+": connected in", g.Connect)
		for _, p := range r.Phases {
			if l := g.Latency[p.Name]; l != nil {
				line(g.Name+": answer, "+p.Name, l.Corrected)
				if l.Raw.Quantile(0.99) < l.Corrected.Quantile(0.99)*9/10 {
					line(g.Name+": raw answer, "+p.Name, l.Raw)
				}
			}
		}
		line(g.Name+": lateness of reaps", g.Lateness)
		line(g.Name+": lifetime", g.Lifetime)
	}
	for _, p := range r.Phases {
		line("own delay of loadtest, "+p.Name, r.OwnDelay[p.Name])
	}
}

// toStdout is the name of a file that stands for standard output.
const toStdout = "-"

// report judges a result, writes it in every requested form, and returns an error according to the
// exit code. The summary goes to stderr if stdout has a file.
func (o *options) report(cmd *cobra.Command, res *result.Result) error {
	res.Expectations = slices.Clone(o.expected)
	res.Judge()
	stdout, summary := cmd.OutOrStdout(), cmd.OutOrStdout()
	if o.out == toStdout || o.html == toStdout {
		summary = cmd.ErrOrStderr()
	}
	summarize(summary, res)
	var errs []error
	if o.out != "" {
		errs = append(errs, writeFile(o.out, stdout, res.Write))
	}
	if o.html != "" {
		errs = append(errs, writeFile(o.html, stdout, func(w io.Writer) error { return page.Write(w, res) }))
	}
	causes := errors.New(strings.Join(res.Verdict.Causes, "; "))
	switch {
	case res.Interrupted:
		errs = append(errs, errInterrupted)
	case res.Verdict.Outcome == result.Failed:
		errs = append(errs, causes)
	case res.Verdict.Outcome == result.NotValid:
		errs = append(errs, cannotError{fmt.Errorf("not valid: %w", causes)})
	}
	return errors.Join(errs...)
}

// writeFile writes a file, or stdout.
func writeFile(name string, stdout io.Writer, write func(io.Writer) error) (err error) {
	if name == toStdout {
		return write(stdout)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}

// targetErrors returns the faults of the target as a whole. Only groups that expect an echo count.
func (r *run) targetErrors() (verdicts []string) {
	var all result.Group
	for i := range r.res.Groups {
		if load.Behaviour(r.res.Groups[i].Behaviour).Echoes() {
			all.Add(&r.res.Groups[i])
		}
	}
	switch {
	case r.failed || r.res.Interrupted || all.Opened == 0 || all.Answers > 0:
	case all.Garbled+all.Told > 0:
		verdicts = append(verdicts, "the target does not echo what it receives: it is not an echo server")
	case all.Lost+all.Early >= all.Opened:
		verdicts = append(verdicts, "the target closes every connection")
	case all.Messages > 0:
		verdicts = append(verdicts, "the target never answers: it is not an echo server, or it hangs")
	}
	return verdicts
}
