package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/idlewheel/idlewheel/loadtest/internal/format"
)

const (
	// A drawing has this size in pixels, and the page scales it.
	chartWidth, chartHeight = 460, 270
	letterWidth             = 7.6 // px: mean width of the largest letters, rounded up
	labelHeight             = 16  // px
	labelRows               = 3   // above the area, at most
)

// A chart is lines over two axes.
type chart struct {
	Title, Desc string
	Missing     string // why there is no chart

	x, y  axis
	lines []line
	bands []band
	marks []tick // vertical lines
}

type (
	line struct {
		name   string
		points []point
	}
	// A point without a y value, NaN, interrupts its line.
	point struct{ x, y float64 }
	band  struct {
		name     string
		from, to float64
	}
	tick struct {
		at    float64
		label string
	}
)

// An axis maps values to 0..1.
type axis struct {
	unit  string
	at    func(v float64) float64
	ticks []tick
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
	a := axis{unit: u.name + suffix, at: func(v float64) float64 { return v / greatest }}
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
		a.ticks = append(a.ticks, tick{i * step * u.size, format.Fixed(i*step, decimals)})
	}
	return a
}

// logarithmic returns an axis between values of 1, 2 or 5 times a power of ten that enclose least
// and greatest. Both must be positive.
func logarithmic(least, greatest float64, label func(float64) string) axis {
	rung := func(i int) float64 {
		return []float64{1, 2, 5}[(i%3+3)%3] * math.Pow(10, math.Floor(float64(i)/3))
	}
	first := 3 * int(math.Floor(math.Log10(least)))
	for rung(first+1) <= least*(1+1e-9) {
		first++
	}
	last := first + 1 // an axis needs two ends
	for rung(last) < greatest*(1-1e-9) {
		last++
	}
	from, decades := math.Log10(rung(first)), math.Log10(rung(last)/rung(first))
	a := axis{at: func(v float64) float64 { return (math.Log10(v) - from) / decades }}
	for i := first; i <= last; i++ {
		if i%3 == 0 || last-first < 10 { // a long axis shows powers of ten only
			a.ticks = append(a.ticks, tick{rung(i), label(rung(i))})
		}
	}
	return a
}

// thinned returns about 2n of many points: the least and the greatest of each n-th part.
func thinned(s []point, n int) []point {
	if len(s) <= 2*n {
		return s
	}
	var thin []point
	byY := func(a, b point) int { return cmp.Compare(a.y, b.y) }
	for i := range n {
		part := s[i*len(s)/n : (i+1)*len(s)/n]
		ends := []point{slices.MinFunc(part, byY), slices.MaxFunc(part, byY)}
		slices.SortFunc(ends, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		thin = append(thin, slices.CompactFunc(ends, func(a, b point) bool { return a.x == b.x })...)
	}
	return thin
}

// px is a length in a drawing.
type px float64

// String implements fmt.Stringer. It rounds to a tenth of a pixel.
func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// A drawing is a chart with positions, as the template needs it.
type drawing struct {
	XUnit, YUnit                   string
	W, H, Left, Right, Top, Bottom px
	XTicks, YTicks, Labels         []text
	Marks                          []text
	Bands                          []box
	Lines                          []path
}

type (
	text struct {
		X, Y        px
		Text, Class string
	}
	box struct {
		X, Y, W, H px
		Tip, Class string
	}
	path struct{ Class, Path string } // there are six classes, each with a colour and a dash
)

// Legend returns the names of the lines with their classes. A single line has no legend: the title
// names it.
func (c *chart) Legend() (names []text) {
	for i, l := range c.lines {
		if len(c.lines) > 1 {
			names = append(names, text{Text: l.name, Class: fmt.Sprintf("s%d", i%6)})
		}
	}
	return names
}

// Drawing places everything in the chart.
func (c *chart) Drawing() drawing {
	d := drawing{
		XUnit: c.x.unit, YUnit: c.y.unit, W: chartWidth, H: chartHeight, Right: chartWidth - 14, Bottom: chartHeight - 42, Left: 30,
	}
	for _, t := range c.y.ticks {
		d.Left = max(d.Left, 14+px(letterWidth*float64(utf8.RuneCountInString(t.label))))
	}
	d.label(c)
	for _, t := range c.y.ticks {
		d.YTicks = append(d.YTicks, text{Y: d.y(c, t.at), Text: t.label})
	}
	for _, t := range c.x.ticks {
		d.XTicks = append(d.XTicks, text{X: d.x(c, t.at), Text: t.label})
	}
	for i, b := range c.bands {
		from, to := d.x(c, b.from), d.x(c, b.to)
		d.Bands = append(d.Bands, box{from, d.Top, max(to-from, 0), d.Bottom - d.Top, b.name, fmt.Sprintf("band%d", i%2)})
	}
	for i, l := range c.lines {
		d.line(c, i, l.points)
	}
	return d
}

func (d *drawing) x(c *chart, v float64) px {
	return d.Left + (d.Right-d.Left)*px(min(max(c.x.at(v), 0), 1))
}

func (d *drawing) y(c *chart, v float64) px {
	return d.Bottom - (d.Bottom-d.Top)*px(min(max(c.y.at(v), 0), 1))
}

// label places the names of bands and marks in rows without overlap, and sets the top of the area
// below them. A name without room is left out; its tooltip remains.
func (d *drawing) label(c *chart) {
	var named []text
	for i, m := range c.marks {
		mark := text{X: d.x(c, m.at), Text: m.label, Class: fmt.Sprintf("mark%d", i%3)}
		d.Marks, named = append(d.Marks, mark), append(named, mark)
	}
	for _, b := range c.bands {
		named = append(named, text{X: d.x(c, b.from), Text: b.name})
	}
	slices.SortStableFunc(named, func(a, b text) int { return cmp.Compare(a.X, b.X) })
	var ends [labelRows]px
	used := 0
	for _, n := range named {
		if r := []rune(n.Text); len(r) > 22 {
			n.Text = string(r[:21]) + "…"
		}
		width := px(letterWidth * float64(utf8.RuneCountInString(n.Text)))
		n.X = min(n.X+3, d.Right-width)
		if row := slices.IndexFunc(ends[:], func(end px) bool { return n.X >= end }); row >= 0 {
			ends[row] = n.X + width + 6
			used = max(used, row+1)
			n.Y = px(32 + labelHeight*row)
			d.Labels = append(d.Labels, n)
		}
	}
	d.Top = px(26 + labelHeight*used)
}

func (d *drawing) line(c *chart, i int, points []point) {
	var b strings.Builder
	step := "M"
	for _, p := range points {
		if math.IsNaN(p.y) {
			step = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%v %v", step, d.x(c, p.x), d.y(c, p.y))
		step = "L"
	}
	d.Lines = append(d.Lines, path{fmt.Sprintf("s%d", i%6), b.String()})
}
