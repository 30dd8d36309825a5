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
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width, height, rowHeight = 760 * vg.Length(1), 250 * vg.Length(1), 15 * vg.Length(1)
	legendWidth              = 215 * vg.Length(1)
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

// picture is a plot with what stands right of it.
type picture struct {
	*plot.Plot
	legend *plot.Legend
	height vg.Length
}

func save(file string, make func() (picture, error)) error {
	p, err := make()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c := vgsvg.New(width, p.height)
	area := draw.New(c)
	if p.legend != nil {
		p.Plot.Draw(draw.Crop(area, 6, -legendWidth, 6, -6))
		p.legend.Draw(draw.Crop(area, width-legendWidth+8, 0, 0, -30))
	} else {
		p.Plot.Draw(draw.Crop(area, 6, -12, 6, -6))
	}
	var text bytes.Buffer
	if _, err := c.WriteTo(&text); err != nil {
		return err
	}
	anySans := bytes.ReplaceAll(text.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,sans-serif"))
	return os.WriteFile(file, anySans, 0o644)
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
func (r recording) draw(g graph) (picture, error) {
	p := r.empty(g.Title)
	scale, unit := unitOf(g)
	p.Y.Label.Text, p.Y.Min = unit, 0
	for _, s := range g.Series {
		for _, point := range s.Points {
			p.Y.Max = max(p.Y.Max, point[1]/scale)
		}
	}
	p.Y.Max = max(p.Y.Max, 1e-3) * 1.25 // the letters are above the lines
	if err := r.shadeFaults(p); err != nil {
		return picture{}, err
	}
	p.Add(lines())
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.ThumbnailWidth, legend.Padding = true, true, 16, 3
	legend.TextStyle.Font.Size = 8.5
	for i, s := range g.Series {
		style := draw.LineStyle{Color: colours[i%len(colours)], Width: 1.2}
		for _, part := range s.parts(scale) {
			line, err := plotter.NewLine(part)
			if err != nil {
				return picture{}, err
			}
			line.LineStyle = style
			p.Add(line)
		}
		legend.Add(s.Label, &plotter.Line{LineStyle: style})
	}
	return picture{p, &legend, height}, nil
}

func lines() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color, g.Vertical.Width, g.Horizontal.Width = grid, grid, .5, .5
	return g
}

// unitOf returns what values are divided by, and the unit then.
func unitOf(g graph) (scale float64, unit string) {
	switch g.Unit {
	case "bytes":
		return 1 << 20, "MiB"
	case "reqps":
		return 1, "per second"
	case "s":
		return 1, "seconds"
	}
	return 1, ""
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

// drawRun has a row for each load, fault and alert.
func (r recording) drawRun() (picture, error) {
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
			return picture{}, err
		}
		p.Add(box)
	}
	p.NominalY(names...)
	p.X.Tick.Marker = r.empty("").X.Tick.Marker
	p.Y.Min, p.Y.Max = -.6, float64(len(rows))-.4
	p.Y.Tick.Label.Font.Size = 9
	return picture{p, nil, rowHeight*vg.Length(len(rows)) + 60}, nil
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
