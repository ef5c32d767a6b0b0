package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

var (
	plain   = []unit{{"", 1, 0}}
	seconds = []unit{{"s", 1, 0}, {"min", 60, 240}, {"h", 3600, 4 * 3600}}
	memory  = []unit{{"B", 1, 0}, {"KiB", 1 << 10, 1 << 10}, {"MiB", 1 << 20, 1 << 20}, {"GiB", 1 << 30, 1 << 30}}
)

// charts returns the charts of a report.
func charts(r *result.Result) []*chart {
	return []*chart{
		overTime(r, quantity{title: "Connections over time", suffix: "connections", units: plain, write: format.Number},
			metric{"open", func(s *result.Sample) float64 { return float64(s.Open) }}),
		overTime(r, quantity{title: "Time to an answer over time, of the answers that came", write: durationText},
			metric{"max", func(s *result.Sample) float64 { return float64(s.Latency.Max) }},
			metric{"p99", func(s *result.Sample) float64 { return float64(s.Latency.P99) }},
			metric{"p50", func(s *result.Sample) float64 { return float64(s.Latency.P50) }}),
		lateness(r),
		overTime(r, quantity{title: "Messages per second", suffix: "messages/s", units: plain, write: format.Number, rate: true},
			metric{"sent", func(s *result.Sample) float64 { return float64(s.Messages) }}),
		overTime(r, quantity{title: "CPU over time", suffix: "cores", units: plain, write: format.Number, rate: true},
			metric{"server", func(s *result.Sample) float64 { return s.Server.CPU.Seconds() }},
			metric{"client", func(s *result.Sample) float64 { return s.Client.CPU.Seconds() }}),
		overTime(r, quantity{title: "Memory over time", units: memory, write: format.Bytes[float64]},
			metric{"server RSS", func(s *result.Sample) float64 { return float64(s.Server.RSS) }},
			metric{"client RSS", func(s *result.Sample) float64 { return float64(s.Client.RSS) }},
			metric{"kernel, whole machine", func(s *result.Sample) float64 { return float64(s.Kernel) }}),
	}
}

func durationText(v float64) string { return format.Duration(time.Duration(math.Round(v))) }

// A quantity is what the lines of a chart over time have in common.
type quantity struct {
	title, suffix string
	units         []unit // nil for a logarithmic axis
	write         func(float64) string
	rate          bool // lines show the growth of a count per second
}

// A metric is one line of a chart over time.
type metric struct {
	name string
	of   func(*result.Sample) float64
}

// overTime draws samples over time. Metrics that are always 0 were not measured and are left out.
func overTime(r *result.Result, q quantity, metrics ...metric) *chart {
	c := &chart{Title: q.title, Desc: "The run has no samples.", Phases: r.Phases}
	if len(r.Samples) < 2 {
		return c
	}
	var said []string
	var all []point
	for _, m := range metrics {
		points := q.points(r.Samples, m)
		if top := slices.MaxFunc(points, byY); top.y > 0 {
			all = append(all, points...)
			c.Lines = append(c.Lines, line{m.name, points})
			said = append(said, strings.TrimSpace(m.name+": up to "+q.write(top.y)+" "+q.suffix)+" at "+durationText(top.x*1e9))
		}
	}
	if len(said) == 0 {
		c.Desc = "All samples are 0, or it was not measured."
		return c
	}
	c.Desc = strings.Join(said, "; ")
	c.XAxis = linear(r.Took.Seconds(), 6, seconds, " since the start of the run")
	all = slices.DeleteFunc(all, func(p point) bool { return !(p.y > 0) })
	least, peak := slices.MinFunc(all, byY).y, slices.MaxFunc(all, byY).y
	if q.units == nil {
		c.YAxis = logarithmic(least, peak, q.write)
	} else {
		c.YAxis = linear(1.05*peak, 5, q.units, q.suffix)
	}
	return c
}

// points returns a value for each sample, or with rate the growth per second. A count that shrinks
// is of a restarted process; its growth is 0.
func (q *quantity) points(samples []result.Sample, m metric) (points []point) {
	for i := range samples {
		b, a := &samples[i], &samples[max(i-1, 0)]
		p := point{b.At.Seconds(), m.of(b)}
		if q.rate {
			p.y = max(0, p.y-m.of(a)) / (b.At - a.At).Seconds() // NaN for the first one
		}
		points = append(points, p)
	}
	return points
}

// lateness draws which part of the connections was reaped how long after its timeout.
func lateness(r *result.Result) *chart {
	c := &chart{Title: "Time from the timeout to the reap", Desc: "No connection was reaped after a known timeout."}
	h := r.Total().Lateness
	if h.Count() == 0 {
		return c
	}
	c.Desc = format.Count(h.Count()) + " reaped: " + (&result.Latency{Corrected: h}).Spread() + " after the timeout"
	greatest := max(h.Max(), time.Millisecond)
	// Outliers would leave no room for the others.
	if far := max(h.Quantile(0.999), time.Millisecond); greatest > 2*far {
		greatest = far + far/4
		c.Desc += "; longer times than " + format.Duration(greatest) + " are not shown"
	}
	curve := []point{{}}
	for i := range 1001 {
		if d := h.Quantile(float64(i) / 1000); d <= greatest {
			curve = append(curve, point{d.Seconds(), float64(i) / 10})
		}
	}
	c.Lines = []line{{"reaped", curve}}
	mark := func(name string, d time.Duration) {
		c.Lines = append(c.Lines, line{name + " " + format.Duration(d), []point{{d.Seconds(), 0}, {d.Seconds(), 100}}})
	}
	mark("p50", h.Quantile(0.5))
	mark("p99", h.Quantile(0.99))
	if of := r.Setup.Tick; of > 0 && of < 20*greatest {
		greatest = max(greatest, of)
		mark("tick", of)
	}
	c.XAxis = linear(greatest.Seconds(), 6, []unit{{"ms", 1e-3, 0}, {"s", 1, 2}}, " after the timeout")
	c.YAxis = linear(100, 5, plain, "% reaped")
	return c
}

// A chart is lines over two axes. Without lines, Desc says why. Positions are percentages of the
// area between the axes, from its upper left.
type chart struct {
	Title, Desc  string
	XAxis, YAxis axis
	Lines        []line
	Phases       []result.Phase
}

type (
	line struct {
		Name   string
		points []point
	}
	// A point without a y value, NaN, or without a place on the axis interrupts its line.
	point struct{ x, y float64 }
	tick  struct {
		Value float64
		Label string
	}
)

// An axis maps values to 0..1.
type axis struct {
	Unit  string
	Ticks []tick
	at    func(v float64) float64
}

// X returns the position of a value.
func (c *chart) X(v float64) float64 { return percent(c.XAxis.at(v)) }

// Y returns the position of a value.
func (c *chart) Y(v float64) float64 { return percent(1 - c.YAxis.at(v)) }

// Width returns the width of a phase on an axis of seconds.
func (c *chart) Width(p result.Phase) float64 { return c.X((p.To - p.From).Seconds()) }

func percent(part float64) float64 { return math.Round(1e4*min(max(part, 0), 1)) / 100 }

// Path returns the path of a line in SVG.
func (c *chart) Path(l line) string {
	var b strings.Builder
	step := "M"
	for _, p := range thinned(l.points) {
		if math.IsNaN(p.y) || math.IsInf(c.YAxis.at(p.y), 0) { // a logarithmic axis has no 0
			step = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%v %v", step, c.X(p.x), c.Y(p.y))
		step = "L"
	}
	return b.String()
}

// A unit labels an axis. The last unit with a from up to the greatest value applies.
type unit struct {
	name       string
	size, from float64
}

// linear returns an axis from 0 to greatest, with at most n round steps. The suffix follows the
// unit, such as "/s".
func linear(greatest float64, n int, units []unit, suffix string) axis {
	u := units[0]
	for _, other := range units {
		if greatest >= other.from {
			u = other
		}
	}
	a := axis{Unit: u.name + suffix, at: func(v float64) float64 { return v / greatest }}
	raw := greatest / u.size / float64(n)
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, to := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if step < raw*(1-1e-9) {
			step *= to
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	for i := 0.0; i*step <= greatest/u.size*(1+1e-9); i++ {
		a.Ticks = append(a.Ticks, tick{i * step * u.size, format.Fixed(i*step, decimals)})
	}
	return a
}

// logarithmic returns an axis between values of 1, 2 or 5 times a power of ten that enclose least
// and greatest. Both must be 1 or more.
func logarithmic(least, greatest float64, label func(float64) string) axis {
	var rungs []float64
	for power := 1.0; power < 10*greatest; power *= 10 {
		rungs = append(rungs, power, 2*power, 5*power)
	}
	first, exact := slices.BinarySearch(rungs, least)
	if !exact {
		first--
	}
	last, _ := slices.BinarySearch(rungs, greatest)
	last = max(last, first+1) // an axis needs two ends
	a := axis{at: func(v float64) float64 { return math.Log(v/rungs[first]) / math.Log(rungs[last]/rungs[first]) }}
	for i := first; i <= last; i++ {
		if i%3 == 0 || last-first < 10 { // a long axis shows powers of ten only
			a.Ticks = append(a.Ticks, tick{rungs[i], label(rungs[i])})
		}
	}
	return a
}

func byY(a, b point) int { return cmp.Compare(a.y, b.y) }

// thinned returns at most 600 of many points: the least and the greatest of each part.
func thinned(all []point) []point {
	const parts = 300
	if len(all) <= 2*parts {
		return all
	}
	var thin []point
	for part := range slices.Chunk(all, (len(all)+parts-1)/parts) {
		a, b := slices.MinFunc(part, byY), slices.MaxFunc(part, byY)
		if a.x > b.x {
			a, b = b, a
		}
		thin = append(thin, a, b)
	}
	return thin
}
