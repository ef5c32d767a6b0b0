package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

// resultCharts returns the charts of a report.
func resultCharts(r *result.Result) []*chart {
	total := r.Total()
	return []*chart{
		timeChart(r, timeChartStyle{"Connections over time", "connections", plain, countText, false},
			metric{"open", func(s *result.Sample) float64 { return float64(s.Open) }}),
		timeChart(r, timeChartStyle{"Messages per second", "messages/s", plain, countText, true},
			metric{"sent", func(s *result.Sample) float64 { return float64(s.Messages) }}),
		lateness(r, total.Lateness),
		latency(r, total.Latency),
		timeChart(r, timeChartStyle{"Memory over time", "", memory, size, false},
			metric{"server RSS", func(s *result.Sample) float64 { return float64(s.Server.RSS) }},
			metric{"client RSS", func(s *result.Sample) float64 { return float64(s.Client.RSS) }},
			metric{"kernel, for sockets", func(s *result.Sample) float64 { return float64(s.Kernel) }}),
		timeChart(r, timeChartStyle{"CPU over time", "cores", plain, cores, true},
			metric{"server", func(s *result.Sample) float64 { return s.Server.CPU.Seconds() }},
			metric{"client", func(s *result.Sample) float64 { return s.Client.CPU.Seconds() }}),
	}
}

func countText(v float64) string { return grouped(v, 0) }
func cores(v float64) string     { return short(v) + nbsp + "cores" }

// A timeChartStyle is what the lines of a chart over time have in common.
type timeChartStyle struct {
	title, suffix string
	units         []unit
	write         func(float64) string
	rate          bool // lines show the growth of a count per second
}

// A metric is one line of a chart over time.
type metric struct {
	name string
	of   func(*result.Sample) float64
}

// timeChart draws samples over time. Metrics that are always 0 were not measured and are left out.
func timeChart(r *result.Result, sc timeChartStyle, metrics ...metric) *chart {
	c := &chart{Title: sc.title}
	samples := ordered(r.Samples)
	if len(samples) < 2 {
		c.Missing = "The run has no samples."
		return c
	}
	var peak float64
	var said []string
	for _, m := range metrics {
		s := m.series(samples, sc.rate)
		top := slices.MaxFunc(s, func(a, b point) int { return cmp.Compare(a.y, b.y) })
		if top.y == 0 {
			continue
		}
		peak = max(peak, top.y)
		c.legend, c.series = append(c.legend, m.name), append(c.series, thinned(s, 300))
		said = append(said, m.name+": "+sc.summary(s, top))
	}
	if len(said) == 0 {
		c.Missing = "All samples are 0, or it was not measured."
		return c
	}
	end := c.phases(r, samples[len(samples)-1].At)
	c.Desc = strings.Join(said, "; ")
	c.x, c.y = linear(end.Seconds(), seconds, " since the start of the run"), rounded(peak, sc.units, sc.suffix)
	return c
}

// ordered returns the samples in increasing time, without those that go back.
func ordered(samples []result.Sample) (kept []*result.Sample) {
	for i := range samples {
		if s := &samples[i]; s.At >= 0 && (len(kept) == 0 || s.At > kept[len(kept)-1].At) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (m metric) series(samples []*result.Sample, rate bool) (s series) {
	for i, b := range samples {
		if !rate {
			s = append(s, point{b.At.Seconds(), m.of(b), duration(b.At)})
		} else if i > 0 {
			s = append(s, point{b.At.Seconds(), m.growth(samples[i-1], b), duration(b.At)})
		}
	}
	return s
}

// growth returns the growth of a count per second. A count that shrinks is of a restarted process;
// its growth is 0.
func (m metric) growth(a, b *result.Sample) float64 {
	return max(0, m.of(b)-m.of(a)) / (b.At - a.At).Seconds()
}

// summary describes a line in words.
func (sc timeChartStyle) summary(s series, top point) string {
	at := " (at " + top.tip + ")"
	if !sc.rate {
		return "up to " + sc.write(top.y) + at + ", " + sc.write(s[len(s)-1].y) + " at the end"
	}
	var sum float64
	for _, p := range s {
		sum += p.y
	}
	return "mean " + sc.write(sum/float64(len(s))) + ", up to " + sc.write(top.y) + at
}

// phases adds the phases as bands, and returns the end of the last phase or sample.
func (c *chart) phases(r *result.Result, end time.Duration) time.Duration {
	for _, p := range r.Phases {
		end = max(end, p.To)
	}
	for _, p := range r.Phases {
		to := p.To
		if to <= p.From { // the phase has not ended
			to = end
		}
		c.bands = append(c.bands, band{p.Name, p.From.Seconds(), to.Seconds()})
	}
	return end
}

// lateness draws how long after their timeout connections were reaped.
func lateness(r *result.Result, h *result.Histogram) *chart {
	c := &chart{Title: "Time from the timeout to the reap"}
	if h.Count() == 0 {
		c.Missing = "No connection was reaped after a known timeout."
		return c
	}
	c.Desc = count(h.Count()) + " reaped: " + spread(h) + " after the timeout"
	c.marks = []tick{{ms(h.Quantile(0.5)), quantile(h, "p50", 0.5)}, {ms(h.Quantile(0.99)), quantile(h, "p99", 0.99)}}
	greatest := h.Max()
	if far := h.Quantile(0.999); greatest > 2*far { // outliers would leave one column for the rest
		greatest = far + far/4
	}
	greatest = max(greatest, time.Millisecond)
	if tickTime := r.Setup.Tick; tickTime > 0 && tickTime < 20*greatest {
		greatest = max(greatest, tickTime)
		c.marks = append(c.marks, tick{ms(tickTime), "tick" + nbsp + duration(tickTime)})
	}
	step := max(time.Microsecond, time.Duration(niceStep(float64(greatest), 45)))
	most := c.bin(h, step, int(greatest/step))
	c.x = linear(ms(step)*float64(greatest/step+1), []unit{{"ms", 1, 0}}, " after the timeout")
	c.y = rounded(most, plain, "connections")
	var names []string
	var late []*result.Histogram
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Lateness.Count() > 0 {
			names, late = append(names, g.Name), append(late, g.Lateness)
		}
	}
	c.Table = quantileTable("Group", "Reaped", names, late, nil)
	return c
}

// bin adds the columns of a Histogram and returns the highest. The last column includes all longer
// durations.
func (c *chart) bin(h *result.Histogram, step time.Duration, last int) (most float64) {
	counts := make([]uint64, last+1)
	beyond := false
	for _, b := range h.Bars() {
		i := int(b.From / step)
		beyond = beyond || i > last
		counts[min(i, last)] += b.Count
	}
	for i, n := range counts {
		from, to := time.Duration(i)*step, time.Duration(i+1)*step
		k := column{from: ms(from), to: ms(to), y: float64(n), tip: fmt.Sprintf("%s to %s: %s", duration(from), duration(to), count(n))}
		if i == last && beyond {
			k.rest, k.tip = true, fmt.Sprintf("%s to %s: %s", duration(from), duration(h.Max()), count(n))
			c.Desc += "; the last column includes all longer times"
		}
		if n > 0 {
			c.columns = append(c.columns, k)
		}
		most = max(most, k.y)
	}
	return most
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentiles are the points of a latency curve. x is log10(1/(1-q)), the number of nines; the
// maximum follows the last one.
var percentiles = []struct {
	q, x float64
	name string
}{{0.5, math.Log10(2), "50"}, {0.9, 1, "90"}, {0.99, 2, "99"}, {0.999, 3, "99.9"}, {0.9999, 4, "99.99"}, {1, 5, "max"}}

// latency draws the time to an answer for living connections, with a line per phase.
func latency(r *result.Result, byPhase map[string]*result.Latency) *chart {
	c := &chart{Title: "Time to an answer, living connections"}
	least, greatest := time.Hour, time.Microsecond
	var said []string
	var corrected, raw []*result.Histogram
	for _, phase := range phasesOf(r, byPhase) {
		h := byPhase[phase].Corrected
		if h.Count() == 0 {
			continue
		}
		corrected, raw = append(corrected, h), append(raw, byPhase[phase].Raw)
		var s series
		for _, p := range percentiles {
			v := max(h.Quantile(p.q), time.Microsecond)
			least, greatest = min(least, v), max(greatest, v)
			s = append(s, point{p.x, float64(v), phase + ", " + p.name + ": " + duration(v)})
		}
		c.legend, c.series = append(c.legend, phase), append(c.series, s)
		said = append(said, phase+" p99 "+duration(h.Quantile(0.99)))
	}
	if len(said) == 0 {
		c.Missing = "No message was answered."
		return c
	}
	c.Desc, c.dots = "corrected for coordinated omission: "+strings.Join(said, "; "), true
	first, last := percentiles[0].x, percentiles[len(percentiles)-1].x
	c.x = axis{"percentile", func(v float64) float64 { return (v - first) / (last - first) }, func(int) (ticks []tick) {
		for _, p := range percentiles {
			ticks = append(ticks, tick{p.x, p.name})
		}
		return ticks
	}}
	c.y = logarithmic(float64(least), float64(greatest), func(v float64) string { return duration(time.Duration(math.Round(v))) })
	c.y.unit = "time to answer"
	c.Table = quantileTable("Phase", "Answers", c.legend, corrected, raw)
	return c
}

// phasesOf returns the phases with answers, in order of time.
func phasesOf(r *result.Result, byPhase map[string]*result.Latency) (names []string) {
	for _, p := range r.Phases {
		if byPhase[p.Name] != nil && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byPhase)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
