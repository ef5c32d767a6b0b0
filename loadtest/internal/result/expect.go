package result

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An Expectation is a condition on the result, and whether it holds.
type Expectation struct {
	Name string `json:"name"`
	Want string `json:"want"` // an operator and a value
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// A kind is the unit of a figure.
type kind struct {
	example string
	parse   func(string) (float64, error)
	format  func(float64) string
}

var (
	number = &kind{"0", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) },
		func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }}
	byteCount = &kind{"400", number.parse, number.format}
	percent   = &kind{"100%", parsePercent, func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) + "%" }}
	duration  = &kind{"250ms", parseDuration, func(v float64) string { return time.Duration(v).String() }}
)

func parsePercent(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if v < 0 || v > 100 {
		v = math.NaN()
	}
	return v, err
}

func parseDuration(s string) (float64, error) {
	d, err := time.ParseDuration(s)
	return float64(d), err
}

// A reading is the value of a figure. Least is the value without the own delay of this program.
// If atLeast is set, the true value may be any larger one.
type reading struct {
	got, least float64
	measured   bool
	atLeast    bool
}

// figureNames are the names that read knows.
const figureNames = "client-bytes, doubled, early, early-by, false-reaps, garbled, held, kept, open-failed, open-within, reaped, " +
	"server-bytes, skipped, starved, swapped, unanswered, connect.Q, latency.Q, latency.PHASE.Q, lateness.Q, lifetime.Q, " +
	"own-delay.Q, own-delay.PHASE.Q (Q: p50, p90, p99, p99.9 or max)"

// quantileNames are the quantiles that an expectation can name.
var quantileNames = map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1}

// cutQuantile cuts the quantile off a name such as lateness.p99.
func cutQuantile(name string) (base string, q float64, found bool) {
	for quantile, q := range quantileNames {
		if base, found := strings.CutSuffix(name, "."+quantile); found {
			return base, q, true
		}
	}
	return name, 0, false
}

// read returns the figure with a name, and its kind, which is nil if no figure has the name.
func (r *Result) read(name string) (reading, *kind) {
	costs := cmp.Or(r.Costs, &Costs{})
	switch name {
	case "held":
		return r.held(), percent
	case "open-within":
		return r.openWithin(), duration
	case "early-by":
		return exact(float64(r.Total().EarliestBy), true), duration
	case "client-bytes":
		return exact(costs.ClientBytes, r.Costs != nil), byteCount
	case "server-bytes":
		return exact(costs.ServerBytes, r.Costs != nil), byteCount
	}
	for _, c := range Counters {
		if c.Figure == name && name != "" {
			return exact(float64(c.Of(r.faults())), true), number
		}
	}
	base, q, found := cutQuantile(name)
	if !found {
		return reading{}, nil
	}
	total := r.Total()
	totals := map[string]Histogram{"connect": total.Connect, "lateness": total.Lateness, "lifetime": total.Lifetime}
	if h, ok := totals[base]; ok {
		var v reading
		v.raise(&Latency{Corrected: h}, q, time.Duration(r.ownDelay("", 1).got)) // of any phase
		return v, duration
	}
	switch base, phase, _ := strings.Cut(base, "."); base {
	case "latency":
		return r.latency(phase, q), duration
	case "own-delay":
		return r.ownDelay(phase, q), duration
	}
	return reading{}, nil
}

// raise raises a reading to the quantile of another latency, which includes an own delay.
func (v *reading) raise(l *Latency, q float64, own time.Duration) {
	if l.Count() == 0 {
		return
	}
	d, atLeast := l.Quantile(q)
	v.got, v.least = max(v.got, float64(d)), max(v.least, float64(d-own))
	v.measured, v.atLeast = true, v.atLeast || atLeast
}

// latency returns the highest quantile of a group, in one phase or in the worst one.
func (r *Result) latency(phase string, q float64) (worst reading) {
	for _, g := range r.Groups { // not the total, where large groups hide small ones
		for name, l := range g.Latency {
			if phase == "" || phase == name {
				worst.raise(l, q, r.OwnDelay[name].Max())
			}
		}
	}
	return worst
}

// ownDelay returns the highest quantile of the own delay, in one phase or in the worst one. It is 0
// if nothing was due.
func (r *Result) ownDelay(phase string, q float64) (worst reading) {
	worst.measured = phase == "" || r.Length(phase) > 0
	for name, h := range r.OwnDelay {
		if worst.measured && (phase == "" || phase == name) {
			worst.raise(&Latency{Corrected: *h}, q, 0)
		}
	}
	return worst
}

// openWithin returns the time in which all connections were opened.
func (r *Result) openWithin() reading {
	took := r.Length("open")
	if took <= 0 || r.faults().OpenFailed > 0 {
		return reading{}
	}
	return reading{got: float64(took), least: max(0, float64(took-r.OwnDelay["open"].Max())), measured: true}
}

// held returns the percentage of connections that were opened and not lost.
func (r *Result) held() reading {
	requested, kept := 0, uint64(0)
	for _, g := range r.Groups {
		if g.Behaviour == "churn" || g.Hostile { // its connections are not held
			continue
		}
		requested += g.Connections
		kept += g.Opened - min(g.Lost+g.Starved, g.Opened)
	}
	return exact(100*float64(kept)/float64(max(requested, 1)), true)
}

// exact returns a reading that does not depend on the delay of this program.
func exact(v float64, measured bool) reading { return reading{got: v, least: v, measured: measured} }

// ParseExpectation parses an expectation such as lateness.p99<250ms.
func ParseExpectation(text string) (Expectation, error) {
	i := strings.IndexAny(text, "<>=")
	if i < 0 {
		return Expectation{}, fmt.Errorf("%q: set a condition such as lateness.p99<250ms", text)
	}
	e := Expectation{Name: strings.TrimSpace(text[:i]), Want: strings.ReplaceAll(text[i:], " ", "")}
	_, kind := (&Result{}).read(e.Name)
	_, err := e.condition(kind)
	return e, err
}

// condition returns the condition on a figure of some kind.
func (e *Expectation) condition(k *kind) (holds func(float64) bool, err error) {
	if k == nil {
		return nil, fmt.Errorf("%q is not known: the names are %s", e.Name, figureNames)
	}
	value := strings.TrimLeft(e.Want, "<>=")
	bound, err := k.parse(value)
	if err != nil || math.IsNaN(bound) {
		return nil, fmt.Errorf("%s%s: set a value such as %s", e.Name, e.Want, k.example)
	}
	holds = map[string]func(v float64) bool{
		"<":  func(v float64) bool { return v < bound },
		"<=": func(v float64) bool { return v <= bound },
		">":  func(v float64) bool { return v > bound },
		">=": func(v float64) bool { return v >= bound },
		"==": func(v float64) bool { return v == bound },
	}[strings.TrimSuffix(e.Want, value)]
	if holds == nil {
		return nil, fmt.Errorf("%s%s: the operators are < <= > >= ==", e.Name, e.Want)
	}
	return holds, nil
}

// evaluate sets Got and OK. It reports whether the own delay of this program decides.
func (e *Expectation) evaluate(r *Result) (explained bool) {
	v, kind := r.read(e.Name)
	if !v.measured {
		e.Got = "not measured"
		return false
	}
	holds, _ := e.condition(kind) // it was parsed before
	e.Got, e.OK = kind.format(v.got), holds(v.got)
	if v.atLeast {
		e.Got, e.OK = "at least "+e.Got, e.OK && holds(math.Inf(1))
		return false
	}
	return holds(v.least) != e.OK
}
