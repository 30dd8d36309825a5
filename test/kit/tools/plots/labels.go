package main

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	labelSize = vg.Length(8.5)
	// The lines take this part of the height, their labels this one, and the letters of the faults are above.
	linesPart, labelsPart = 0.74, 0.84
)

// label is the name of a line, which is put near its peak in the line's color.
type label struct {
	text  string
	peak  plotter.XY
	color color.Color
}

// labels are the names of all lines of a plot, none of which covers another.
type labels []label

// Plot implements plot.Plotter.
func (l labels) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	area := c.Rectangle
	area.Max.Y -= (1 - labelsPart) * area.Size().Y
	var taken []vg.Rectangle
	for _, name := range l {
		style := p.Legend.TextStyle
		style.Font.Size, style.Color = labelSize, name.color
		peak := vg.Point{X: toX(name.peak.X), Y: toY(name.peak.Y)}
		box := place(area, taken, peak, vg.Point{X: style.Width(name.text) + 4, Y: labelSize + 2})
		taken = append(taken, box)
		c.SetColor(color.NRGBA{255, 255, 255, 200})
		c.Fill(box.Path())
		if near := (vg.Point{X: min(max(peak.X, box.Min.X), box.Max.X), Y: min(max(peak.Y, box.Min.Y), box.Max.Y)}); near.Y != peak.Y {
			c.StrokeLine2(draw.LineStyle{Color: name.color, Width: .5}, peak.X, peak.Y, near.X, near.Y)
		}
		c.FillText(style, vg.Point{X: box.Min.X + 2, Y: box.Min.Y + 3}, name.text)
	}
}

// place returns a box of a size in the area that covers none of the taken ones: as near as there is room above or below a point, first
// centered on it, then left and right of it. Without any room it is the first.
func place(area vg.Rectangle, taken []vg.Rectangle, at, size vg.Point) vg.Rectangle {
	box := func(x, y vg.Length) vg.Rectangle {
		low := vg.Point{
			X: min(max(x, area.Min.X), max(area.Min.X, area.Max.X-size.X)),
			Y: min(max(y, area.Min.Y), max(area.Min.Y, area.Max.Y-size.Y)),
		}
		return vg.Rectangle{Min: low, Max: low.Add(size)}
	}
	first := box(at.X-size.X/2, at.Y+2)
	for step := vg.Length(0); step < 30; step++ {
		for _, y := range []vg.Length{at.Y + 2 + step*size.Y, at.Y - 2 - (step+1)*size.Y} {
			for _, x := range []vg.Length{at.X - size.X/2, at.X + 4, at.X - 4 - size.X} {
				if try := box(x, y); !covers(taken, try) {
					return try
				}
			}
		}
	}
	return first
}

func covers(taken []vg.Rectangle, box vg.Rectangle) bool {
	for _, t := range taken {
		if t.Min.X < box.Max.X && box.Min.X < t.Max.X && t.Min.Y < box.Max.Y && box.Min.Y < t.Max.Y {
			return true
		}
	}
	return false
}
