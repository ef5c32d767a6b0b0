// Package page writes a result as a self-contained HTML file: no scripts, no fonts, no requests.
package page

import (
	"bytes"
	"cmp"
	_ "embed" // for the template
	"errors"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

//go:embed report.html
var source string

var report = template.Must(template.New("report").Parse(source))

// Grades are CSS classes. The empty grade means no judgement.
const (
	good = "good"
	warn = "warn"
	bad  = "bad"
)

// A view is the data of the template.
type view struct {
	Verdict  string
	Grade    string
	Headline string
	Sentence string
	Began    string
	Banners  []string
	Cards    []card
	Wanted   table
	Charts   []*chart
	Missing  *table // missing charts and the reasons
	Groups   table
	Details  []table
	Command  string
	Notes    []string
}

// A card is a main figure of the report.
type card struct{ Label, Value, Hint, Grade string }

// Write writes a result as an HTML page. Equal results give equal bytes. It writes to w only when
// the page is complete.
func Write(w io.Writer, r *result.Result) error {
	if r == nil {
		return errors.New("page: no result")
	}
	var b bytes.Buffer
	if err := report.Execute(&b, newView(r)); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	if _, err := bytes.NewReader(bytes.Map(printable, b.Bytes())).WriteTo(w); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// printable replaces characters that HTML and XML do not allow even when escaped, and characters
// that change the text direction. Names and reasons of failures can contain any character.
func printable(r rune) rune {
	control := unicode.IsControl(r) && r != '\n' && r != '\t'
	if control || unicode.Is(unicode.Bidi_Control, r) || r&0xfffe == 0xfffe {
		return unicode.ReplacementChar
	}
	return r
}

func newView(r *result.Result) *view {
	total := r.Total()
	v := &view{
		Sentence: sentence(r), Cards: cards(r, &total), Wanted: expectations(r), Charts: resultCharts(r),
		Groups: groups(r), Command: r.Command, Notes: r.Notes,
	}
	if !r.Began.IsZero() {
		v.Began = r.Began.Format("2 January 2006, 15:04:05 MST")
	}
	for _, c := range v.Charts {
		if c.Missing != "" {
			if v.Missing == nil {
				v.Missing = &table{Title: "Not shown"}
			}
			v.Missing.add(c.Title, c.Missing)
		}
	}
	v.Verdict = cmp.Or(string(r.Verdict.Outcome), "not judged")
	v.Grade, v.Headline = judged(r, &total)
	v.Headline = cmp.Or(v.Headline, v.Verdict)
	v.Notes = append(slices.Clone(r.Verdict.Remarks), v.Notes...)
	if r.Interrupted {
		v.Banners = append(v.Banners, "The run was interrupted after "+duration(r.Took)+": the figures cover the time until then.")
	}
	v.Banners = append(v.Banners, some(slices.Concat(r.Errors, r.Faults), 20)...)
	for _, t := range []table{failures(r), ownDelay(r), costs(r.Costs), setup(r), machines(r)} {
		if len(t.Rows) > 0 {
			v.Details = append(v.Details, t)
		}
	}
	return v
}

// judged returns the grade of the verdict and the headline.
func judged(r *result.Result, total *result.Group) (grade, headline string) {
	switch r.Verdict.Outcome {
	case result.Failed:
		return bad, strings.Join(some(r.Verdict.Causes, 4), "; ")
	case result.Passed:
		if total.Reaped > 0 {
			return good, "no living connection was closed, and " +
				plural(total.Reaped, "dead connection was reaped", "dead connections were reaped")
		}
		return good, "no living connection was closed"
	}
	return warn, strings.Join(some(r.Verdict.Causes, 4), "; ")
}

// sentence describes the run.
func sentence(r *result.Result) string {
	s := &r.Setup
	said := plural(s.Connections, "connection", "connections")
	if s.Clients > 0 {
		said += " from " + plural(s.Clients, "client process", "client processes")
	}
	if s.Servers > 0 {
		said += " to " + plural(s.Servers, "launched server", "launched servers")
	} else if len(s.Targets) > 0 {
		said += " to " + strings.Join(some(s.Targets, 3), ", ")
	}
	if s.Bare {
		said += ", without a reaper"
	}
	if s.Timeout > 0 {
		said += ", with an idle timeout of " + duration(s.Timeout)
	}
	if r.Verb != "" {
		said = r.Verb + ": " + said
	}
	if r.Took > 0 {
		said += ", in " + duration(r.Took)
	}
	return said + "."
}

// cards returns the main figures. Expectations judge durations, so those have no grade.
func cards(r *result.Result, total *result.Group) []card {
	all := result.NewHistogram()
	for _, l := range total.Latency {
		all.Add(l.Corrected)
	}
	asked := uint64(max(r.Setup.Connections, 0))
	early := card{"Reaped early", count(total.Early), "none before its timeout", ""}
	if total.Early > 0 {
		early.Hint = "by up to " + duration(total.EarliestBy)
	} else if total.Lateness.Count() == 0 {
		early.Value, early.Hint = none, "no reap after a known timeout"
	}
	return []card{
		{"Opened", count(total.Opened), "of " + count(r.Setup.Connections), grade(total.Opened < asked, warn, total.Opened)},
		{"Lost", count(total.Lost), "false reaps: living connections closed by the target", grade(total.Lost > 0, bad, total.Opened)},
		{"Reaped", count(total.Reaped), count(total.Kept) + " dead connections were kept open", grade(total.Kept > 0, warn, total.Reaped)},
		early,
		slow("Reap lateness, p99", total.Lateness, "no reap after a known timeout"),
		slow("Latency of living connections, p99", all, "no message was answered"),
	}
}

// grade returns fault if it happened, and good if anything was measured.
func grade(happened bool, fault string, measured uint64) string {
	switch {
	case happened:
		return fault
	case measured > 0:
		return good
	}
	return ""
}

// slow returns a card for a duration.
func slow(label string, h *result.Histogram, missing string) card {
	if h.Count() == 0 {
		return card{label, none, missing, ""}
	}
	return card{label, duration(h.Quantile(0.99)), quantile(h, "p50", 0.5) + " · " + quantile(h, "max", 1), ""}
}
