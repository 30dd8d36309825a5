package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

const (
	width, height, rowHeight = 760 * vg.Length(1), 280 * vg.Length(1), 15 * vg.Length(1)
	resolution               = 144 // dots in an inch, twice that of a usual screen
	// gap is how far apart, in seconds, two points are that no line joins.
	gap = 8
)

var (
	// colours can be told apart by people who are colour-blind (Okabe and Ito).
	colours = []color.Color{
		color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{204, 121, 167, 255},
		color.RGBA{86, 180, 233, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 0, 0, 255}, color.RGBA{150, 150, 150, 255},
	}
	// shades take turns, so that faults which follow each other are told apart.
	shades = []color.Color{color.RGBA{255, 232, 228, 255}, color.RGBA{253, 240, 210, 255}}
	bars   = map[string]color.Color{"load": colours[0], "fault": color.RGBA{240, 150, 140, 255}, "alert": color.RGBA{200, 0, 0, 255}}
	grid   = color.RGBA{225, 225, 225, 255}
)

// save writes a plot as PNG, in which the text looks the same everywhere.
func save(file string, height vg.Length, make func() (*plot.Plot, error)) error {
	p, err := make()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(resolution))
	p.Draw(draw.Crop(draw.New(c), 6, -12, 6, -6))
	var image bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(&image); err != nil {
		return err
	}
	return os.WriteFile(file, image.Bytes(), 0o644)
}

// empty is a plot over the time of the run.
func (r recording) empty(title string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, "minutes of the run"
	p.X.Min, p.X.Max = 0, r.end()
	p.X.Tick.Marker = plot.TickerFunc(func(_, end float64) (ticks []plot.Tick) {
		for at := 0.0; at <= end; at += 30 {
			ticks = append(ticks, plot.Tick{Value: at, Label: fmt.Sprintf("%d:%02d", int(at)/60, int(at)%60)})
		}
		return ticks
	})
	p.Y.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		ticks := plot.DefaultTicks{}.Ticks(low, high)
		for i, tick := range ticks {
			if tick.Label != "" {
				ticks[i].Label = strconv.FormatFloat(tick.Value, 'g', 4, 64)
			}
		}
		return ticks
	})
	p.X.Padding, p.Y.Padding = 0, 0
	return p
}

// draw is a panel of the dashboard, with the time of each fault shaded.
func (r recording) draw(g graph) (*plot.Plot, error) {
	p := r.empty(g.Title)
	scale := scaleOf(g)
	p.Y.Label.Text, p.Y.Min = g.Axis, 0
	for _, s := range g.Series {
		for _, point := range s.Points {
			p.Y.Max = max(p.Y.Max, point[1]/scale)
		}
	}
	p.Y.Max = max(p.Y.Max, 1e-3) / linesPart
	if err := r.shadeFaults(p); err != nil {
		return nil, err
	}
	p.Add(lines())
	names := labels{}
	for i, s := range g.Series {
		color := colours[i%len(colours)]
		for _, part := range s.parts(scale) {
			line, err := plotter.NewLine(part)
			if err != nil {
				return nil, err
			}
			line.LineStyle = draw.LineStyle{Color: color, Width: 1.2}
			p.Add(line)
		}
		names = append(names, label{s.Label, s.peak(scale), color})
	}
	p.Add(names)
	return p, nil
}

func lines() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color, g.Vertical.Width, g.Horizontal.Width = grid, grid, .5, .5
	return g
}

// scaleOf returns what values are divided by: bytes are shown as MiB.
func scaleOf(g graph) float64 {
	if g.Unit == "bytes" {
		return 1 << 20
	}
	return 1
}

// peak is the first of the highest points.
func (s series) peak(scale float64) (peak plotter.XY) {
	for i, point := range s.Points {
		if y := point[1] / scale; i == 0 || y > peak.Y {
			peak = plotter.XY{X: point[0], Y: y}
		}
	}
	return peak
}

// parts are the points without gaps.
func (s series) parts(scale float64) (parts []plotter.XYs) {
	last := math.Inf(-1)
	for _, point := range s.Points {
		if point[0]-last > gap {
			parts = append(parts, nil)
		}
		last = point[0]
		parts[len(parts)-1] = append(parts[len(parts)-1], plotter.XY{X: last, Y: point[1] / scale})
	}
	return parts
}

// shadeFaults marks the time of each fault, with its letter at the upper edge, in two rows.
func (r recording) shadeFaults(p *plot.Plot) error {
	var letters plotter.XYLabels
	for i, f := range r.faults() {
		box, err := bar(f, 0, p.Y.Max, shades[i%2])
		if err != nil {
			return err
		}
		p.Add(box)
		letters.XYs = append(letters.XYs, plotter.XY{X: (f.From + f.To) / 2, Y: p.Y.Max * (.93 - .07*float64(i%2))})
		letters.Labels = append(letters.Labels, letter(i))
	}
	labels, err := plotter.NewLabels(letters)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].XAlign = draw.XCenter
		labels.TextStyle[i].Font.Size = 8.5
	}
	p.Add(labels)
	return nil
}

func bar(s span, low, high float64, fill color.Color) (*plotter.Polygon, error) {
	to := max(s.To, s.From+1) // a bar of no width is visible too
	box, err := plotter.NewPolygon(plotter.XYs{{X: s.From, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: s.From, Y: high}})
	if err != nil {
		return nil, err
	}
	box.Color, box.LineStyle.Width = fill, 0
	return box, nil
}

// runHeight is the height of the plot with a row for each load, fault and alert.
func (r recording) runHeight() vg.Length {
	rows, _ := r.rows()
	return rowHeight*vg.Length(len(rows)) + 60
}

// drawRun has a row for each load, fault and alert.
func (r recording) drawRun() (*plot.Plot, error) {
	p := r.empty("The run: what was done, what failed, which alerts fired")
	p.Add(lines())
	rows, at := r.rows()
	names := make([]string, len(rows))
	for i, row := range rows {
		names[len(rows)-1-i] = row
	}
	for i, s := range r.Spans {
		y := float64(len(rows) - 1 - at[i])
		box, err := bar(s, y-.35, y+.35, bars[s.Kind])
		if err != nil {
			return nil, err
		}
		p.Add(box)
	}
	p.NominalY(names...)
	p.X.Tick.Marker = r.empty("").X.Tick.Marker
	p.Y.Min, p.Y.Max = -.6, float64(len(rows))-.4
	p.Y.Tick.Label.Font.Size = 9
	return p, nil
}

// rows names the rows, first those of the load, then the faults and the alerts. at is the row of each span.
func (r recording) rows() (names []string, at []int) {
	at = make([]int, len(r.Spans))
	row := map[string]int{}
	faults := 0
	for _, kind := range []string{"load", "fault", "alert"} {
		for i, s := range r.Spans {
			if s.Kind != kind {
				continue
			}
			name := s.What
			if kind == "fault" {
				name = letter(faults) + "  " + name
				faults++
			}
			if _, has := row[name]; !has {
				row[name] = len(names)
				names = append(names, name)
			}
			at[i] = row[name]
		}
	}
	return names, at
}
