// Command plots draws what `make e2e-monitoring PLOTS=...` has recorded, as PNG files in a folder: run.png shows when
// volumes changed, what failed and which alerts fired, and each other file a panel of the dashboard. Letters name the faults.
//
//	plots RECORDING.json FOLDER
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
)

// recording is what test/check/monitoring writes. Times are seconds since the run began.
type recording struct {
	Spans  []span  `json:"spans"`
	Graphs []graph `json:"graphs"`
}

type span struct {
	Kind string  `json:"kind"` // load, fault or alert
	What string  `json:"what"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

type graph struct {
	File   string   `json:"file"`
	Title  string   `json:"title"`
	Unit   string   `json:"unit"` // as in Grafana
	Axis   string   `json:"axis"` // what the values are, for people
	Series []series `json:"series"`
}

type series struct {
	Label  string       `json:"label"`
	Points [][2]float64 `json:"points"` // time and value
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plots RECORDING.json FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, folder string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(r.Spans) == 0 || len(r.Graphs) == 0 {
		return fmt.Errorf("%s: nothing is recorded", file)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	err = save(filepath.Join(folder, "run.png"), r.runHeight(), r.drawRun)
	for _, g := range r.Graphs {
		err = errors.Join(err, save(filepath.Join(folder, g.File+".png"), height, func() (*plot.Plot, error) { return r.draw(g) }))
	}
	return err
}

// faults are in the order of their letters.
func (r recording) faults() (faults []span) {
	for _, s := range r.Spans {
		if s.Kind == "fault" {
			faults = append(faults, s)
		}
	}
	return faults
}

// letter names the fault with a number from 0.
func letter(number int) string { return string(rune('A' + number)) }

// end is when the run was over.
func (r recording) end() (end float64) {
	for _, s := range r.Spans {
		end = max(end, s.To)
	}
	return end
}
