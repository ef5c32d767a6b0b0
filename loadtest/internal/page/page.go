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
	for _, t := range []table{failures(r), costs(r.Costs), setup(r), phases(r), machines(r)} {
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

// keptGrade returns the grade of kept connections: bad if the target has a reaper and had the time
// to reap.
func keptGrade(r *result.Result) string {
	if r.Setup.Bare || r.Setup.Timeout == 0 || r.Interrupted {
		return ""
	}
	return bad
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

func cards(r *result.Result, total *result.Group) []card {
	return []card{held(r, total), lost(total), reaped(r, total), early(r, total), late(total), living(total)}
}

func held(r *result.Result, total *result.Group) card {
	peak := uint64(0)
	for _, s := range r.Samples {
		peak = max(peak, s.Open)
	}
	if len(r.Samples) == 0 {
		peak = total.Opened
	}
	c := card{"Connections held", count(peak), count(total.Opened) + " opened of " + count(r.Setup.Connections), ""}
	switch asked := uint64(max(r.Setup.Connections, 0)); {
	case asked > 0 && peak >= asked:
		c.Grade = good
	case total.Opened < asked:
		c.Grade = warn
	}
	return c
}

func lost(total *result.Group) card {
	c := card{"Lost", count(total.Lost), "false reaps: living connections closed by the target", ""}
	if total.Lost > 0 {
		c.Grade = bad
	} else if total.Opened > 0 {
		c.Grade = good
	}
	return c
}

func reaped(r *result.Result, total *result.Group) card {
	c := card{"Reaped", count(total.Reaped), "dead connections closed by the target", ""}
	switch {
	case total.Kept > 0:
		c.Hint, c.Grade = count(total.Kept)+" dead connections were kept open", keptGrade(r)
	case total.Reaped > 0:
		c.Hint, c.Grade = "all dead connections", good
	}
	return c
}

func early(r *result.Result, total *result.Group) card {
	switch {
	case total.Early > 0:
		return card{"Reaped early", count(total.Early), "by up to " + duration(total.EarliestBy), bad}
	case total.Reaped == 0 || r.Setup.Timeout == 0:
		return card{"Reaped early", none, "no reap after a known timeout", ""}
	}
	return card{"Reaped early", "0", "none before its timeout", good}
}

func late(total *result.Group) card {
	return slow("Reap lateness, p99", total.Lateness, "no reap after a known timeout")
}

func living(total *result.Group) card {
	h := result.NewHistogram()
	for _, l := range total.Latency {
		h.Add(l.Corrected)
	}
	return slow("Latency of living connections, p99", h, "no message was answered")
}

// slow returns a card for a duration. Expectations judge durations, so it has no grade.
func slow(label string, h *result.Histogram, missing string) card {
	if h.Count() == 0 {
		return card{label, none, missing, ""}
	}
	return card{label, duration(h.Quantile(0.99)), quantile(h, "p50", 0.5) + " · " + quantile(h, "max", 1), ""}
}
