// Package page writes a result as a self-contained HTML file: no scripts, no fonts, no requests.
package page

import (
	"bytes"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"unicode"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

//go:embed report.html
var source string

var report = template.Must(template.New("report").Funcs(template.FuncMap{
	"duration": format.Duration, "bytes": format.Bytes[float64], "memory": format.Bytes[uint64], "count": format.Count[uint64],
	"plural": format.Plural[int], "some": result.Some, "charts": charts, "durations": durations, "columns": columns,
	"counters": func() []result.Counter { return result.Counters },
}).Parse(source))

// Write writes a judged result as an HTML page. Equal results give equal bytes. It writes to w only
// when the page is complete.
func Write(w io.Writer, r *result.Result) error {
	var b bytes.Buffer
	err := report.Execute(&b, r)
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

// durations returns the durations that have a card.
func durations(r *result.Result) []result.Times {
	total, answers := r.Total(), result.Latency{}
	for _, l := range total.Latency {
		answers.Add(l)
	}
	return []result.Times{
		{Name: "lateness of reaps", Latency: result.Latency{Corrected: total.Lateness}},
		{Name: "time to an answer", Latency: answers},
	}
}

// columns returns the groups, and their sum if there are several.
func columns(r *result.Result) (all []*result.Group) {
	for i := range r.Groups {
		all = append(all, &r.Groups[i])
	}
	if len(all) > 1 {
		all = append(all, r.Total())
	}
	return all
}
