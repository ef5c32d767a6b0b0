package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	letterWidth      = 6.2 // px: mean width of a letter at an axis, rounded up
	labelLetterWidth = 7.2 // px: mean width of a letter of a label above the area
	labelHeight      = 14  // px
	labelRows        = 3   // above the area, at most
)

// A chart is lines or columns over an axis. It is drawn for two widths, because text in an SVG
// shrinks with the drawing, and CSS shows one of them.
type chart struct {
	Title, Desc string
	Missing     string // why there is no chart
	Table       table

	x, y    axis
	legend  []string // names of the series
	series  []series
	columns []column
	bands   []band
	marks   []tick // vertical lines
	dots    bool
}

type (
	series []point
	point  struct {
		x, y float64
		tip  string // tooltip of a dot; of a line over time, the time
	}
	column struct {
		from, to, y float64
		tip         string
		rest        bool // counts all values beyond the axis
	}
	band struct {
		name     string
		from, to float64
	}
	tick struct {
		at    float64
		label string
	}
)

// An axis maps values to 0..1 and labels round values, as many as there is room for.
type axis struct {
	unit  string
	at    func(v float64) float64
	ticks func(room int) []tick
}

// niceStep returns the least of 1, 2 and 5 times a power of ten that divides a span into at most n
// parts.
func niceStep(span float64, n int) float64 {
	raw := span / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// niceTicks returns the multiples of a nice step from 0 to greatest, and the number of their
// decimals.
func niceTicks(greatest float64, n int) (at []float64, decimals int) {
	step := niceStep(greatest, n)
	for i := 0.0; i*step <= greatest*(1+1e-9); i++ {
		at = append(at, i*step)
	}
	return at, max(0, -int(math.Floor(math.Log10(step)+1e-9)))
}

// linear returns an axis from 0 to greatest. The suffix follows the unit, such as "/s".
func linear(greatest float64, units []unit, suffix string) axis {
	u := unitFor(units, greatest)
	return axis{u.name + suffix, func(v float64) float64 { return v / greatest }, func(room int) (ticks []tick) {
		at, decimals := niceTicks(greatest/u.size, room)
		for _, v := range at {
			ticks = append(ticks, tick{v * u.size, grouped(v, decimals)})
		}
		return ticks
	}}
}

// rounded returns a linear axis that ends at a tick.
func rounded(greatest float64, units []unit, suffix string) axis {
	if greatest <= 0 {
		greatest = 1
	}
	u, n := unitFor(units, greatest), 5
	step := niceStep(greatest/u.size, n) * u.size
	a := linear(math.Ceil(greatest/step-1e-9)*step, []unit{u}, suffix)
	ticks := a.ticks
	a.ticks = func(int) []tick { return ticks(n) }
	return a
}

// logarithmic returns an axis between values of 1, 2 or 5 times a power of ten that enclose least
// and greatest. Both must be positive.
func logarithmic(least, greatest float64, label func(float64) string) axis {
	var ladder []float64
	for power := math.Floor(math.Log10(least)); power <= math.Ceil(math.Log10(greatest)); power++ {
		for _, m := range []float64{1, 2, 5} {
			ladder = append(ladder, m*math.Pow(10, power))
		}
	}
	above := func(v float64) int { // the first rung that is at least v
		return slices.IndexFunc(ladder, func(rung float64) bool { return rung >= v*(1-1e-9) })
	}
	first, last := above(least), above(greatest)
	if first > 0 && ladder[first] > least*(1+1e-9) {
		first--
	}
	if last == first { // an axis needs two ends
		last++
	}
	from, decades := math.Log10(ladder[first]), math.Log10(ladder[last]/ladder[first])
	return axis{"", func(v float64) float64 { return (math.Log10(v) - from) / decades }, func(int) (ticks []tick) {
		for i := first; i <= last; i++ {
			if i%3 == 0 || last-first < 10 { // a long axis shows powers of ten only
				ticks = append(ticks, tick{ladder[i], label(ladder[i])})
			}
		}
		return ticks
	}}
}

// thinned returns about 2n of many points: the least and the greatest of each n-th part.
func thinned(s series, n int) series {
	if len(s) <= 2*n {
		return s
	}
	thin := make(series, 0, 2*n+2)
	for i := range n {
		part := s[i*len(s)/n : (i+1)*len(s)/n]
		least, greatest := 0, 0
		for j, p := range part {
			if p.y < part[least].y {
				least = j
			}
			if p.y > part[greatest].y {
				greatest = j
			}
		}
		thin = append(thin, part[min(least, greatest)])
		if least != greatest {
			thin = append(thin, part[max(least, greatest)])
		}
	}
	return thin
}

// px is a length in a drawing.
type px float64

// String implements fmt.Stringer. It rounds to a tenth of a pixel.
func (p px) String() string { return strconv.FormatFloat(math.Round(float64(p)*10)/10, 'f', -1, 64) }

// A drawing is a chart at one size, as the template needs it.
type drawing struct {
	Class                          string
	Title, Desc, XUnit, YUnit      string
	W, H, Left, Right, Top, Bottom px
	XTicks, YTicks, Labels         []text
	Bands, Columns                 []box
	Marks, Dots                    []text
	Lines                          []line
}

type (
	text struct {
		X, Y  px
		Text  string
		Class string
	}
	box struct {
		X, Y, W, H px
		Tip, Class string
	}
	line struct{ Class, Path, Area string }
)

// Legend returns the names of the lines with their classes. A single line has no legend: the title
// names it.
func (c *chart) Legend() (names []text) {
	if len(c.legend) > 1 {
		for i, name := range c.legend {
			names = append(names, text{Text: name, Class: lineClass(i)})
		}
	}
	return names
}

// lineClass returns the CSS class of a line. There are six, each with a colour and a dash.
func lineClass(i int) string { return fmt.Sprintf("s%d", i%6) }

// Drawings returns the chart for a wide and for a narrow place.
func (c *chart) Drawings() []drawing {
	return []drawing{c.draw("wide", 560, 290), c.draw("narrow", 320, 250)}
}

func (c *chart) draw(class string, w, h px) drawing {
	d := drawing{
		Class: class, Title: c.Title, Desc: c.Desc, XUnit: c.x.unit, YUnit: c.y.unit,
		W: w, H: h, Right: w - 14, Bottom: h - 38, Left: 30,
	}
	ys := c.y.ticks(0)
	for _, t := range ys {
		d.Left = max(d.Left, 14+px(letterWidth*float64(utf8.RuneCountInString(t.label))))
	}
	d.label(c)
	for _, t := range ys {
		d.YTicks = append(d.YTicks, text{Y: d.y(c, t.at), Text: t.label})
	}
	for _, t := range c.x.ticks(int((d.Right-d.Left)/42 + 0.5)) {
		d.XTicks = append(d.XTicks, text{X: d.x(c, t.at), Text: t.label})
	}
	for i, b := range c.bands {
		from, to := d.x(c, b.from), d.x(c, b.to)
		d.Bands = append(d.Bands, box{from, d.Top, to - from, d.Bottom - d.Top, b.name, fmt.Sprintf("band%d", i%2)})
	}
	for _, k := range c.columns {
		d.Columns = append(d.Columns, d.column(c, k))
	}
	for i, s := range c.series {
		d.line(c, i, s)
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
		n.Text = clipped(n.Text, 22)
		width := px(labelLetterWidth * float64(utf8.RuneCountInString(n.Text)))
		n.X = min(n.X+3, d.Right-width)
		for i := range ends {
			if n.X >= ends[i] {
				ends[i] = n.X + width + 6
				used = max(used, i+1)
				n.Y = px(30 + labelHeight*i)
				d.Labels = append(d.Labels, n)
				break
			}
		}
	}
	d.Top = px(24 + labelHeight*used)
}

func (d *drawing) column(c *chart, k column) box {
	from, to, top := d.x(c, k.from), d.x(c, k.to), d.y(c, k.y)
	if k.y > 0 {
		top = min(top, d.Bottom-1) // small columns stay visible
	}
	class := "column"
	if k.rest {
		class = "column rest"
	}
	return box{from + 0.5, top, max(to-from-1, 0.5), d.Bottom - top, k.tip, class}
}

func (d *drawing) line(c *chart, i int, s series) {
	var b strings.Builder
	class := lineClass(i)
	for j, p := range s {
		x, y := d.x(c, p.x), d.y(c, p.y)
		fmt.Fprintf(&b, "%c%v %v", "ML"[min(j, 1)], x, y)
		if c.dots {
			d.Dots = append(d.Dots, text{x, y, p.tip, class})
		}
	}
	l := line{Class: class, Path: b.String()}
	if len(c.series) == 1 && len(s) > 0 {
		l.Area = fmt.Sprintf("%sL%v %vL%v %vZ", l.Path, d.x(c, s[len(s)-1].x), d.Bottom, d.x(c, s[0].x), d.Bottom)
	}
	d.Lines = append(d.Lines, l)
}
