package main

import (
	"bytes"
	"encoding/json"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

// recorded is a run of six minutes with one volume's life, one fault, one alert and a panel with a gap.
func recorded(t *testing.T) string {
	t.Helper()
	r := recording{Spans: []span{
		{"load", "9 volumes are created", 5, 90}, {"fault", "the API answers 503", 100, 160}, {"alert", "CloudblockCallsFail", 117, 180},
	}}
	for _, unit := range []string{"s", "bytes"} {
		g := graph{File: "panel-" + unit, Title: "A panel", Unit: unit}
		for _, label := range []string{"CreateVolume OK", "<DeleteVolume>"} {
			s := series{Label: label}
			for at := 0.0; at < 360; at += 2 {
				if at < 200 || at > 260 {
					s.Points = append(s.Points, [2]float64{at, 1e7 * (1 + math.Sin(at))})
				}
			}
			g.Series = append(g.Series, s)
		}
		r.Graphs = append(r.Graphs, g)
	}
	text, err := json.Marshal(&r)
	file := filepath.Join(t.TempDir(), "recording.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// drawn are the files that a recording becomes.
func drawn(t *testing.T, file string) map[string]string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "plots")
	if err := run(file, folder); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = string(text)
	}
	return files
}

func TestEachPanelIsAFile(t *testing.T) {
	file := recorded(t)
	files := drawn(t, file)
	for name, heights := range map[string]int{"run.png": 210, "panel-s.png": 560, "panel-bytes.png": 560} {
		config, err := png.DecodeConfig(strings.NewReader(files[name]))
		if size := len(files[name]); err != nil || config.Width != 1520 || config.Height != heights || size > 250<<10 {
			t.Errorf("%s is %d x %d, %d bytes, %v; want 1520 x %d", name, config.Width, config.Height, size, err, heights)
		}
	}
	if len(files) != 3 {
		t.Errorf("%d files are drawn, want 3", len(files))
	}
	for name, again := range drawn(t, file) {
		if again != files[name] {
			t.Errorf("%s differs when it is drawn again", name)
		}
	}
}

// TestNoLabelCoversAnother: though all lines have their peaks at one place, at the edge.
func TestNoLabelCoversAnother(t *testing.T) {
	area := vg.Rectangle{Max: vg.Point{X: 700, Y: 200}}
	var taken []vg.Rectangle
	for i := range 8 {
		box := place(area, taken, vg.Point{X: 699, Y: 1}, vg.Point{X: 150 + vg.Length(i), Y: 10})
		if covers(taken, box) || box.Min.X < area.Min.X || box.Min.Y < area.Min.Y || box.Max.X > area.Max.X || box.Max.Y > area.Max.Y {
			t.Errorf("label %d is at %v, the others at %v", i, box, taken)
		}
		taken = append(taken, box)
	}
}

// TestGap: no line joins points between which there are none.
func TestGap(t *testing.T) {
	s := series{Points: [][2]float64{{0, 1}, {2, 1}, {4, 2}, {30, 1}}}
	if parts := s.parts(1); len(parts) != 2 || len(parts[0]) != 3 || len(parts[1]) != 1 {
		t.Errorf("parts = %v, want three points and one", parts)
	}
}

func TestRefusesWhatIsNoRecording(t *testing.T) {
	for _, text := range []string{"", "{}", `{"spans": 1}`} {
		file := filepath.Join(t.TempDir(), "recording.json")
		if err := os.WriteFile(file, bytes.NewBufferString(text).Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(file, t.TempDir()); err == nil {
			t.Errorf("%q is drawn", text)
		}
	}
}
