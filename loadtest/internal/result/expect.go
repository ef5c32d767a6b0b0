package result

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
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

func formatNumber(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

var (
	number    = &kind{"0", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }, formatNumber}
	byteCount = &kind{"400", number.parse, func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }}
	percent   = &kind{"100%", parsePercent, func(v float64) string { return formatNumber(v) + "%" }}
	duration  = &kind{"250ms", parseDuration, func(v float64) string { return time.Duration(v).String() }}
)

func parsePercent(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err == nil && !(v >= 0 && v <= 100) {
		err = errors.New("out of range")
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

// A figure is a value that an expectation can name.
type figure struct {
	kind *kind
	of   func(*Result) reading
}

// figures are the figures without a quantile, beside the Counters.
var figures = map[string]figure{
	"held":         {percent, held},
	"open-within":  {duration, openWithin},
	"early-by":     {duration, func(r *Result) reading { return exact(float64(r.Total().EarliestBy)) }},
	"client-bytes": {byteCount, costOf(func(c *Costs) float64 { return c.ClientBytes })},
	"server-bytes": {byteCount, costOf(func(c *Costs) float64 { return c.ServerBytes })},
}

// durations are the figures with a quantile, such as lateness.p99. Latency and own-delay may name
// a phase in between: latency.during.p99.
var durations = map[string]func(r *Result, phase string, q float64) reading{
	"connect":         func(r *Result, _ string, q float64) reading { return r.quantile(r.Total().Connect, q) },
	"lateness":        func(r *Result, _ string, q float64) reading { return r.quantile(r.Total().Lateness, q) },
	"lifetime":        func(r *Result, _ string, q float64) reading { return r.quantile(r.Total().Lifetime, q) },
	"latency":         (*Result).latency,
	"latency.PHASE":   (*Result).latency,
	"own-delay":       (*Result).ownDelay,
	"own-delay.PHASE": (*Result).ownDelay,
}

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

// figureOf returns the figure with a name.
func figureOf(name string) (figure, bool) {
	if f, ok := figures[name]; ok {
		return f, true
	}
	for _, c := range Counters {
		if c.Figure == name && name != "" {
			return figure{number, func(r *Result) reading {
				faults := r.faults()
				return exact(float64(c.Of(&faults)))
			}}, true
		}
	}
	base, q, found := cutQuantile(name)
	base, phase, hasPhase := strings.Cut(base, ".")
	if hasPhase {
		base += ".PHASE"
	}
	of := durations[base]
	return figure{duration, func(r *Result) reading { return of(r, phase, q) }}, found && of != nil
}

// figureNames returns the names that expectations can have.
func figureNames() string {
	names := slices.Collect(maps.Keys(figures))
	for _, c := range Counters {
		if c.Figure != "" {
			names = append(names, c.Figure)
		}
	}
	slices.Sort(names)
	for _, d := range slices.Sorted(maps.Keys(durations)) {
		names = append(names, d+".Q")
	}
	return strings.Join(names, ", ") + " (Q: p50, p90, p99, p99.9 or max)"
}

// ParseExpectation parses an expectation such as lateness.p99<250ms.
func ParseExpectation(text string) (Expectation, error) {
	i := strings.IndexAny(text, "<>=")
	if i < 0 {
		return Expectation{}, fmt.Errorf("%q: set a condition such as lateness.p99<250ms", text)
	}
	e := Expectation{Name: strings.TrimSpace(text[:i]), Want: strings.ReplaceAll(text[i:], " ", "")}
	_, _, err := e.parse()
	return e, err
}

// parse returns the figure and the condition.
func (e *Expectation) parse() (figure, func(float64) bool, error) {
	f, ok := figureOf(e.Name)
	if !ok {
		return f, nil, fmt.Errorf("%q is not known: the names are %s", e.Name, figureNames())
	}
	value := strings.TrimLeft(e.Want, "<>=")
	bound, err := f.kind.parse(value)
	if err != nil || math.IsNaN(bound) {
		return f, nil, fmt.Errorf("%s%s: set a value such as %s", e.Name, e.Want, f.kind.example)
	}
	holds := map[string]func(v float64) bool{
		"<":  func(v float64) bool { return v < bound },
		"<=": func(v float64) bool { return v <= bound },
		">":  func(v float64) bool { return v > bound },
		">=": func(v float64) bool { return v >= bound },
		"==": func(v float64) bool { return v == bound },
	}[strings.TrimSuffix(e.Want, value)]
	if holds == nil {
		return f, nil, fmt.Errorf("%s%s: the operators are < <= > >= ==", e.Name, e.Want)
	}
	return f, holds, nil
}

// evaluate sets Got and OK. It reports whether the own delay of this program decides.
func (e *Expectation) evaluate(r *Result) (explained bool) {
	f, holds, err := e.parse()
	if err != nil { // the file has another origin
		e.Got, e.OK = err.Error(), false
		return false
	}
	v := f.of(r)
	if !v.measured {
		e.Got, e.OK = "not measured", false
		return false
	}
	e.Got, e.OK = f.kind.format(v.got), holds(v.got)
	if v.atLeast {
		e.Got, e.OK = "at least "+e.Got, e.OK && holds(math.Inf(1))
		return false
	}
	return holds(v.least) != e.OK
}

// exact returns a reading that does not depend on the delay of this program.
func exact(v float64) reading { return reading{got: v, least: v, measured: true} }

func costOf(of func(*Costs) float64) func(*Result) reading {
	return func(r *Result) reading {
		if r.Costs == nil {
			return reading{}
		}
		return exact(of(r.Costs))
	}
}

// quantile returns a quantile. The own delay is the largest of any phase.
func (r *Result) quantile(h *Histogram, q float64) reading {
	own := r.ownDelay("", 1)
	got := float64(h.Quantile(q))
	return reading{got: got, least: max(0, got-own.got), measured: h.Count() > 0}
}

// latency returns the highest quantile of a group, in one phase or in the worst one.
func (r *Result) latency(phase string, q float64) (worst reading) {
	for _, g := range r.Groups { // not the total, where large groups hide small ones
		for name, l := range g.Latency {
			if l.Count() == 0 || phase != "" && phase != name {
				continue
			}
			d, atLeast := l.Quantile(q)
			got := float64(d)
			worst.got, worst.measured, worst.atLeast = max(worst.got, got), true, worst.atLeast || atLeast
			worst.least = max(worst.least, got-float64(r.OwnDelay[name].Max()))
		}
	}
	return worst
}

// ownDelay returns the highest quantile of the own delay, in one phase or in the worst one. It is 0
// if nothing was due.
func (r *Result) ownDelay(phase string, q float64) reading {
	if phase != "" && !slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.Name == phase }) {
		return reading{}
	}
	worst := exact(0)
	for name, h := range r.OwnDelay {
		if h.Count() > 0 && (phase == "" || phase == name) {
			worst = exact(max(worst.got, float64(h.Quantile(q))))
		}
	}
	return worst
}

// openWithin returns the time in which all connections were opened.
func openWithin(r *Result) reading {
	took := float64(r.Length("open"))
	if took <= 0 || r.faults().OpenFailed > 0 {
		return reading{}
	}
	return reading{got: took, least: max(0, took-float64(r.OwnDelay["open"].Max())), measured: true}
}

// held returns the percentage of connections that were opened and not lost.
func held(r *Result) reading {
	requested, kept := 0, uint64(0)
	for _, g := range r.Groups {
		if g.Behaviour == "churn" || g.Hostile { // its connections are not held
			continue
		}
		requested += g.Connections
		kept += g.Opened - min(g.Lost+g.Starved, g.Opened)
	}
	return exact(100 * float64(kept) / float64(max(requested, 1)))
}
