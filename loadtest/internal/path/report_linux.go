package path

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/witness"
)

// A Report is the outcome of a search.
type Report struct {
	Schema      int           `json:"schema"` // version of these fields
	Target      string        `json:"target"`
	Began       time.Time     `json:"began"`
	Took        time.Duration `json:"took_ns"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Parallel    int           `json:"parallel"` // connections per try

	Survived time.Duration `json:"survived_ns"`      // longest silence; 0 if none survived
	Failed   time.Duration `json:"failed_ns"`        // shortest silence; 0 if none failed
	How      Outcome       `json:"how,omitempty"`    // of Failed
	Server   bool          `json:"server,omitempty"` // the server, not the path, ended the connection
	// Heartbeat is the longest interval to use, jitter included. It is 0 if none is known to suffice.
	Heartbeat time.Duration `json:"heartbeat_ns"`

	Tries []Try    `json:"tries"` // shortest first
	Notes []string `json:"notes,omitempty"`
}

// advise fills in the heartbeat and the notes. It follows "The rule" in docs/limits.md.
func (r *Report) advise() {
	slices.SortFunc(r.Tries, func(a, b Try) int { return cmp.Compare(a.Silence, b.Silence) })
	r.Server = r.How == ClosedInTime || r.How == ClosedByWrite
	limit := r.Survived
	if r.How.timed() {
		limit = r.Failed
	}
	r.Heartbeat = limit / 2
	if r.Server {
		r.Heartbeat = witness.Heartbeat(limit)
	}
	if r.Survived == 0 && r.Failed > 0 && !r.How.timed() {
		r.Notes = append(r.Notes, "no silence survived: the target may answer one line only")
	}
	for _, t := range r.Tries {
		if t.How == Survived && r.Failed > 0 && t.Silence > r.Failed {
			r.Notes = append(r.Notes, fmt.Sprintf("a silence of %v survived, although a shorter one did not: the path may have several devices", t.Silence))
		}
		if n := t.Outcomes[Survived]; n > 0 && t.How != Survived {
			r.Notes = append(r.Notes, fmt.Sprintf("a silence of %v counts as failed, although %d of %d connections survived it", t.Silence, n, r.Parallel))
		}
	}
}

// Write writes the report as text.
func (r *Report) Write(out io.Writer) {
	fmt.Fprintf(out, "\npath to %s, %d connections per silence, %s\n\n", r.Target, r.Parallel, r.Took.Round(time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, d time.Duration, remark string) {
		text := "none"
		if d > 0 {
			text = d.Round(time.Millisecond).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, text, remark)
	}
	line("longest silence that survived", r.Survived, "")
	line("shortest silence that did not", r.Failed, string(r.How))
	remark := "half of that; the path may allow more"
	switch {
	case r.Heartbeat == 0:
		remark = ""
	case r.Server:
		remark = "three of them fit in the idle timeout of the server, with a second to spare"
	case r.Failed > 0:
		remark = "half of that: one late heartbeat does no harm"
	}
	line("heartbeat at most every", r.Heartbeat, remark)
	_ = w.Flush()
	fmt.Fprintln(out, "\njitter included; the rule is in docs/limits.md#the-rule")
	if r.Server {
		fmt.Fprintln(out, "the server, or a proxy in its place, ended the connection: the path keeps one for longer than that")
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, n)
	}
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: this is what was known by then")
	}
}
