package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// report renders the tables as Markdown.
func report(r *record) string {
	var b strings.Builder
	b.WriteString("# Timers compared\n\n")
	if r.Quick {
		b.WriteString("**A quick run: small sizes and short times. It shows that everything works. Its figures have no meaning.**\n\n")
	}
	writeSetting(&b, r)
	for _, v := range views {
		if len(r.sizes(v.work)) > 0 {
			writeView(&b, r, v)
		}
		if v.work == workExpiry {
			writePrecision(&b, r)
		}
	}
	return b.String()
}

func writeSetting(b *strings.Builder, r *record) {
	m := r.Machine
	fmt.Fprintf(b, "%s, `%s`\n\n", m.Date, r.Command)
	b.WriteString("| machine | |\n|---|---|\n")
	for _, row := range [][2]string{
		{"processor", fmt.Sprintf("%s, %d cores, GOMAXPROCS %d", m.CPU, m.Cores, m.Procs)},
		{"memory", m.Memory},
		{"system", m.OS + ", " + m.Kernel},
		{"Go", m.Go},
		{"load averages before the start", m.Load},
	} {
		fmt.Fprintf(b, "| %s | %s |\n", row[0], row[1])
	}
	fmt.Fprintf(b, "\nMedians of %s, smallest and largest in brackets. Every measurement runs in a process of its own; a round "+
		"takes all subjects in turn before the next begins. × is the median divided by the median of the subject with × = 1: "+
		"above 1 costs more. With ≈ the figures of the two overlap, so that the difference may be noise. The subjects take turns "+
		"in an order that changes with each round, and warm up before they are measured. The tick is %v for subjects with a tick; a single ring has %d slots. Timers that stay pending "+
		"have random timeouts from %v to %v, the same for all subjects.\n\n",
		plural(r.Rounds, "round"), tick, ringSlots, minTimeout, maxTimeout)

	b.WriteString("| subject | version | |\n|---|---|---|\n")
	for _, c := range candidates() {
		note := c.note
		if reason := r.Absent[c.name]; reason != "" {
			note = "Left out: " + reason + "."
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", c.name, r.Versions[c.name], note)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func writeView(b *strings.Builder, r *record, v view) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", v.title, v.intro)
	sizes := r.sizes(v.work)
	fmt.Fprintf(b, "| %s |", v.unit)
	for _, n := range sizes {
		fmt.Fprintf(b, " n = %s | × |", thousands(float64(n)))
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|---:|", len(sizes)) + "\n")
	for _, c := range v.subjects(r) {
		fmt.Fprintf(b, "| %s |", c.name)
		for _, n := range sizes {
			fmt.Fprintf(b, " %s | %s |", cell(r, v, c.name, n), ratioCell(r, v, c.name, n))
		}
		b.WriteString("\n")
	}
	writeFootnotes(b, r, v)
}

func cell(r *record, v view, subject string, n int) string {
	s := v.of(r, subject, n)
	if s.exists() {
		text := number(s.median)
		if r.Rounds > 1 {
			text += fmt.Sprintf(" (%s–%s)", number(s.low), number(s.high))
		}
		return text
	}
	if found := r.find(v.work, subject, n); found != nil && found.Failure != "" {
		return "failed"
	}
	return "-"
}

func ratioCell(r *record, v view, subject string, n int) string {
	if ratio, ok := v.ratio(r, subject, n); ok {
		if v.isNoise(r, subject, n) {
			return "≈ " + number(ratio)
		}
		return number(ratio)
	}
	return "-"
}

// writeFootnotes writes the notes on one table: how subjects reschedule, failures, and subjects
// that are missing with the reason.
func writeFootnotes(b *strings.Builder, r *record, v view) {
	var notes []string
	w, _ := findWork(v.work)
	for _, c := range v.subjects(r) {
		if w.moves && c.moves != "" {
			notes = append(notes, c.name+": "+c.moves)
		}
	}
	for _, c := range v.subjects(r) {
		for _, n := range r.sizes(v.work) {
			s := r.find(v.work, c.name, n)
			if s != nil && s.Failure != "" {
				notes = append(notes, fmt.Sprintf("%s failed at n = %s after %s: %s.",
					c.name, thousands(float64(n)), plural(len(s.Runs), "good round"), s.Failure))
				break
			}
		}
	}
	if !w.virtual {
		notes = append(notes, leftOut(r, w)...)
	}
	if len(notes) == 0 {
		return
	}
	b.WriteString("\n")
	for _, note := range notes {
		fmt.Fprintf(b, "- %s\n", note)
	}
}

func leftOut(r *record, w work) []string {
	var notes []string
	for _, c := range candidates() {
		reason := c.whyNot(w)
		if r.Absent[c.name] != "" && c.fits(w) {
			reason = r.Absent[c.name]
		}
		if reason != "" {
			notes = append(notes, fmt.Sprintf("Left out: %s, %s.", c.name, reason))
		}
	}
	return notes
}

// precision has the columns of the tables about the lateness of timers.
var precision = []struct{ title, metric string }{
	{"early", "early"}, {"early %", "early_percent"}, {"earliest ms", "earliest_ms"}, {"p50 ms", "p50_ms"},
	{"p99 ms", "p99_ms"}, {"latest ms", "max_ms"}, {"never", "lost"}, {"twice", "twice"},
}

// writePrecision writes the lateness of timers, one table for each size.
func writePrecision(b *strings.Builder, r *record) {
	v := view{work: workExpiry, metric: "early"}
	for _, n := range r.sizes(workExpiry) {
		fmt.Fprintf(b, "\n### When they fired, n = %s\n\n", thousands(float64(n)))
		b.WriteString("Time of the callback less the deadline, which is the time just before the schedule call plus the delay, " +
			"by the monotonic clock. Early: the callback ran before the deadline. Medians over the rounds.\n\n| |")
		for _, p := range precision {
			fmt.Fprintf(b, " %s |", p.title)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(precision)) + "\n")
		for _, c := range v.subjects(r) {
			fmt.Fprintf(b, "| %s |", c.name)
			for _, p := range precision {
				fmt.Fprintf(b, " %s |", number(r.find(workExpiry, c.name, n).summary(p.metric).median))
			}
			b.WriteString("\n")
		}
	}
}

// number renders a figure with about three digits, and NaN as a dash.
func number(x float64) string {
	switch size := math.Abs(x); {
	case math.IsNaN(x):
		return "-"
	case size == 0, size >= 99.95:
		return thousands(x)
	case size >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
}

// thousands renders a rounded figure with commas.
func thousands(x float64) string {
	digits := strconv.FormatFloat(math.Abs(x), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if x < 0 && digits != "0" {
		return "-" + digits
	}
	return digits
}
