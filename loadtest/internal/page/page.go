// Package page writes a result as a self-contained HTML file: no scripts, no fonts, no requests.
package page

import (
	"bytes"
	"cmp"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

//go:embed report.html
var source string

var report = template.Must(template.New("report").Funcs(template.FuncMap{"duration": format.Duration}).Parse(source))

// Grades are CSS classes. The empty grade means no judgement.
const (
	good = "good"
	warn = "warn"
	bad  = "bad"
)

// A view is the data of the template: the result, and what the template cannot make of it.
type view struct {
	*result.Result
	Verdict, Grade, Headline string
	Cards                    []card
	Charts                   []*chart
	Wanted, Groups, Times    table
	Details                  []table
	Notes                    []string
}

// A card is a main figure of the report.
type card struct{ Label, Value, Hint, Grade string }

// Write writes a result as an HTML page. Equal results give equal bytes. It writes to w only when
// the page is complete.
func Write(w io.Writer, r *result.Result) error {
	var b bytes.Buffer
	err := report.Execute(&b, newView(r))
	if err == nil {
		_, err = w.Write(bytes.Map(printable, b.Bytes()))
	}
	if err != nil {
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
		Result: r, Cards: cards(r, &total), Wanted: expectations(r), Charts: reportCharts(r), Groups: groups(r), Times: times(r),
		Notes: slices.Concat(r.Verdict.Remarks, r.Notes),
	}
	missing := table{Title: "Not shown"}
	for _, c := range v.Charts {
		if c.Missing != "" {
			missing.add(c.Title, c.Missing)
		}
	}
	v.Verdict = cmp.Or(string(r.Verdict.Outcome), "not judged")
	v.Grade, v.Headline = judged(r, &total)
	for _, t := range []table{missing, failures(r), costs(r.Costs), setup(r), machines(r)} {
		if len(t.Rows) > 0 {
			v.Details = append(v.Details, t)
		}
	}
	return v
}

// judged returns the grade of the verdict and the headline.
func judged(r *result.Result, total *result.Group) (grade, headline string) {
	grade, headline = warn, strings.Join(result.Some(r.Verdict.Causes, 20), "; ")
	switch r.Verdict.Outcome {
	case result.Failed:
		grade = bad
	case result.Passed:
		grade, headline = good, "no living connection was closed"
		if total.Reaped > 0 {
			headline += ", and " + format.Plural(total.Reaped, "dead connection was reaped", "dead connections were reaped")
		}
	}
	return grade, cmp.Or(headline, "not judged")
}

// firstCounters is the number of counters that always have a card.
const firstCounters = 6

// cards returns the main figures: the first counters, all faults, and two durations, which have no
// grade. A result that is not valid has nothing good.
func cards(r *result.Result, total *result.Group) (all []card) {
	for i, c := range result.Counters {
		n := c.Of(total)
		if i >= firstCounters && (n == 0 || c.Fault == "") {
			continue
		}
		class := grade(c, n)
		if n == 0 && c.Fault != "" && total.Opened > 0 && r.Verdict.Outcome != result.NotValid {
			class = good
		}
		if c.Name == "early" && n > 0 {
			c.Hint = "by up to " + format.Duration(total.EarliestBy)
		}
		all = append(all, card{c.Name, format.Count(n), c.Hint, class})
	}
	for _, t := range []result.Times{
		{Name: "lateness of reaps, p99", Latency: result.Latency{Corrected: total.Lateness}},
		{Name: "time to an answer, p99", Latency: *total.AllLatency()},
	} {
		value := format.None
		if t.Count() > 0 {
			value = t.Text(0.99)
		}
		all = append(all, card{t.Name, value, t.Spread(), ""})
	}
	return all
}

// grade returns the grade of a count that should be 0.
func grade(c result.Counter, n uint64) string {
	if n == 0 {
		return ""
	}
	return map[result.Outcome]string{result.Failed: bad, result.NotValid: warn}[c.Fault]
}
