package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	chartColumns = 2
	panelWidth   = 16 * vg.Centimeter
	panelHeight  = 8.4 * vg.Centimeter
	titleHeight  = 2.3 * vg.Centimeter
	panelPadding = 5 * vg.Millimeter
	panelGap     = 12 * vg.Millimeter // between rows
)

var (
	oursColor  = color.RGBA{R: 0x1b, G: 0x7f, B: 0x79, A: 0xff}
	othersGrey = color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff}
	inkColor   = color.RGBA{R: 0x22, G: 0x28, B: 0x30, A: 0xff}
)

// A bar is one subject in one panel.
type bar struct {
	name  string
	label string
	ratio float64
	ours  bool
}

// bars returns the bars of a panel, in the order of the tables: the view at the largest size for
// which the base has a figure.
func bars(r *record, v view) (list []bar, n int) {
	sizes := r.sizes(v.work)
	slices.Reverse(sizes)
	for _, n := range sizes {
		var list []bar
		for _, c := range v.subjects(r) {
			if ratio, ok := v.ratio(r, c.name, n); ok {
				median := number(v.of(r, c.name, n).median)
				list = append(list, bar{
					name:  c.name,
					label: fmt.Sprintf("%s× (%s)", number(ratio), median),
					ratio: ratio,
					ours:  slices.Contains(baseNames, c.name),
				})
			}
		}
		if len(list) > 0 {
			return list, n
		}
	}
	return nil, 0
}

// writeChart draws the ratios of all views, a panel each, as an SVG file. A record without ratios
// makes an empty chart.
func writeChart(r *record, path string) error {
	var panels []*plot.Plot
	for _, v := range views {
		if v.uncharted {
			continue
		}
		if list, n := bars(r, v); len(list) > 0 {
			panels = append(panels, panel(v, list, n))
		}
	}
	rows := max(1, (len(panels)+chartColumns-1)/chartColumns)
	canvas := vgsvg.New(chartColumns*panelWidth, vg.Length(rows)*panelHeight+titleHeight)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	drawTitle(all, r)
	tiles := draw.Tiles{
		Rows: rows, Cols: chartColumns, PadTop: titleHeight,
		PadLeft: panelPadding, PadRight: panelPadding, PadBottom: panelPadding,
		PadX: panelPadding, PadY: panelGap,
	}
	for i, p := range panels {
		p.Draw(tiles.At(all, i%chartColumns, i/chartColumns))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

func style(size vg.Length, weight bool) text.Style {
	f := font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Size: size}
	if weight {
		f.Weight = 2 // bold
	}
	return text.Style{Color: inkColor, Font: f, Handler: plot.DefaultTextHandler}
}

func drawTitle(c draw.Canvas, r *record) {
	at := vg.Point{X: c.Min.X + panelPadding, Y: c.Max.Y - panelPadding}
	s := style(14, true)
	s.YAlign = draw.YTop
	c.FillText(s, at, "Cost of timers relative to ours, logarithmic: longer is more expensive")
	s = style(9, false)
	s.YAlign = draw.YTop
	line := fmt.Sprintf("Medians of %s in brackets. %s, %d cores, %s, %s.",
		plural(r.Rounds, "round"), r.Machine.CPU, r.Machine.Cores, r.Machine.Go, r.Machine.Date)
	if r.Quick {
		line = "A quick run, which says nothing about speed. " + line
	}
	at.Y -= 18
	c.FillText(s, at, line)
}

func panel(v view, list []bar, n int) *plot.Plot {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s\n%s, n = %s", v.title, v.unit, thousands(float64(n)))
	p.Title.TextStyle = style(9.5, true)
	p.Title.TextStyle.XAlign = draw.XCenter
	p.Title.Padding = 4
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(ratioTicks)
	p.X.Tick.Label = axisStyle(8, draw.XCenter, draw.YTop)
	p.Y.Tick.Label = axisStyle(9, draw.XRight, draw.YCenter)
	p.Y.LineStyle.Width = 0
	p.Y.Tick.LineStyle.Width = 0

	slices.Reverse(list) // the first on top
	low, high := 1.0, 1.0
	ticks := make([]plot.Tick, len(list))
	for i, b := range list {
		low, high = min(low, b.ratio), max(high, b.ratio)
		ticks[i] = plot.Tick{Value: float64(i), Label: b.name}
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	grid := plotter.NewGrid()
	grid.Horizontal.Width = 0
	p.Add(grid, ratioBars(list))
	p.Y.Min, p.Y.Max = -0.6, float64(len(list))-0.4
	span := math.Log(high / low)
	p.X.Min, p.X.Max = low*0.7, high*math.Exp(0.45*span+0.5) // room for the labels
	return p
}

func axisStyle(size vg.Length, x text.XAlignment, y text.YAlignment) text.Style {
	s := style(size, false)
	s.XAlign, s.YAlign = x, y
	return s
}

// ratioTicks marks 1, 2, 5 and their multiples by powers of ten, and labels as many as fit.
func ratioTicks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	decades := math.Log10(high / low)
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for _, m := range []float64{1, 2, 5} {
			x := m * math.Pow(10, e)
			if x < low || x > high || m != 1 && decades > 2.6 {
				continue
			}
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', int(max(0, -e)), 64) + "×"})
		}
	}
	return ticks
}

// ratioBars draws horizontal bars from 1 to each ratio, from the bottom up.
type ratioBars []bar

// Plot implements [plot.Plotter].
func (list ratioBars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	label := axisStyle(8, draw.XLeft, draw.YCenter)
	for i, b := range list {
		from, to := x(min(1, b.ratio)), x(max(1, b.ratio))
		fill := color.Color(othersGrey)
		if b.ours {
			fill = oursColor
		}
		if to-from < 1.5 { // a ratio of 1 is a line
			from, to = from-0.75, to+0.75
		}
		c.FillPolygon(fill, []vg.Point{
			{X: from, Y: y(float64(i) - 0.32)}, {X: to, Y: y(float64(i) - 0.32)},
			{X: to, Y: y(float64(i) + 0.32)}, {X: from, Y: y(float64(i) + 0.32)},
		})
		c.FillText(label, vg.Point{X: to + 3, Y: y(float64(i))}, b.label)
	}
	one := draw.LineStyle{Color: inkColor, Width: 0.75}
	c.StrokeLine2(one, x(1), c.Min.Y, x(1), c.Max.Y)
}
