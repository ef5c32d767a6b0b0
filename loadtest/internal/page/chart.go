package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
	"github.com/idlewheel/idlewheel/loadtest/internal/result"
)

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
	// A point without a y value, NaN, interrupts its line.
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
		if math.IsNaN(p.y) {
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
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, m := range []float64{5, 2, 1} {
		if m*power >= raw*(1-1e-9) {
			step = m * power
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
	from, decades := math.Log10(rungs[first]), math.Log10(rungs[last]/rungs[first])
	a := axis{at: func(v float64) float64 { return (math.Log10(v) - from) / decades }}
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
