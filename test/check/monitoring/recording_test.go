//go:build e2e

package monitoring

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// recording is what test/kit/tools/plots draws. Times are seconds since the run began.
type recording struct {
	Spans  []span  `json:"spans"`
	Graphs []graph `json:"graphs"`

	mu    sync.Mutex
	began time.Time
}

// span is a part of the run: Kind is load, fault or alert.
type span struct {
	Kind string  `json:"kind"`
	What string  `json:"what"`
	From float64 `json:"from"`
	To   float64 `json:"to"`
}

// graph is a panel of the dashboard over the run.
type graph struct {
	File   string   `json:"file"`
	Title  string   `json:"title"`
	Unit   string   `json:"unit"`
	Axis   string   `json:"axis"`
	Series []series `json:"series"`
}

type series struct {
	Label  string       `json:"label"`
	Points [][2]float64 `json:"points"` // time and value
}

// begin notes that something begins. end notes its end.
func (r *recording) begin(kind, what string) (end func()) {
	from := time.Since(r.began).Seconds()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Spans = append(r.Spans, span{kind, what, from, time.Since(r.began).Seconds()})
	}
}

// plotted are the panels that are recorded: the name of the file, the title, what the values are, and which series.
var plotted = []struct {
	file, title, axis string
	series            *regexp.Regexp
}{
	{"csi-calls", "CSI calls by code", "calls per second", regexp.MustCompile("Volume")},
	{"oldest-change", "Oldest change under way", "seconds", regexp.MustCompile("cloud-controller|local-node")},
	{"api-requests", "API requests by code", "requests per second", regexp.MustCompile("")},
	{"api-budget", "API budget: requests left", "requests left", regexp.MustCompile("1m")},
	{"refusals", "Refusals by reason", "refusals in the last minute", regexp.MustCompile("")},
	{"pools", "Pools: size, free, reserved", "MiB", regexp.MustCompile("")},
}

const (
	// step is how far apart the points of a graph are.
	step = 2 * time.Second
	// shown is how many series of a panel are recorded: the largest.
	shown = 8
)

// write asks Prometheus for the alerts and the panels, and writes the recording into a file.
func (r *recording) write(t *testing.T, p *prometheus, file string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	panels := dashboard(t)
	for _, want := range plotted {
		at := slices.IndexFunc(panels, func(p panel) bool { return p.Title == want.title })
		if at < 0 {
			t.Fatalf("the dashboard has no panel %q", want.title)
		}
		g := graph{File: want.file, Title: want.title, Unit: panels[at].FieldConfig.Defaults.Unit, Axis: want.axis}
		for _, target := range panels[at].Targets {
			for _, found := range p.over(t, quick(ours(target.Expr, everyDriver)), r.began, step) {
				s := series{legend(target.LegendFormat, found.labels), found.points}
				if want.series.MatchString(s.Label) {
					g.Series = append(g.Series, s)
				}
			}
		}
		if len(g.Series) == 0 {
			t.Fatalf("%s: no series", want.title)
		}
		slices.SortFunc(g.Series, func(a, b series) int { return cmp.Or(cmp.Compare(b.sum(), a.sum()), cmp.Compare(a.Label, b.Label)) })
		g.Series = g.Series[:min(len(g.Series), shown)]
		r.Graphs = append(r.Graphs, g)
	}
	for _, found := range p.over(t, `sum by (alertname) (ALERTS{alertstate="firing"})`, r.began, time.Second) {
		r.Spans = append(r.Spans, together("alert", found.labels["alertname"], found.points)...)
	}
	slices.SortStableFunc(r.Spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	text, err := json.Marshal(r)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
}

// together makes spans of points that are a second apart.
func together(kind, what string, points [][2]float64) (spans []span) {
	for _, p := range points {
		if last := len(spans) - 1; last >= 0 && p[0]-spans[last].To < 1.5 {
			spans[last].To = p[0]
		} else {
			spans = append(spans, span{kind, what, p[0], p[0]})
		}
	}
	return spans
}

func (s series) sum() (sum float64) {
	for _, p := range s.Points {
		sum += p[1]
	}
	return sum
}

var placeholder = regexp.MustCompile(`{{(\w+)}}`)

// legend fills in the labels of a series.
func legend(format string, labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(format, func(found string) string {
		return labels[placeholder.FindStringSubmatch(found)[1]]
	})
}

type labelled struct {
	labels map[string]string
	points [][2]float64
}

// over returns the series of a query from a time until now, without what is not a number.
func (p *prometheus) over(t *testing.T, query string, from time.Time, step time.Duration) (all []labelled) {
	t.Helper()
	data, err := p.get(t.Context(), "/api/v1/query_range?"+url.Values{
		"query": {query}, "step": {step.String()}, "start": {from.Format(time.RFC3339Nano)}, "end": {time.Now().Format(time.RFC3339Nano)},
	}.Encode())
	must(t, err)
	var answer struct {
		Result []struct {
			Metric map[string]string
			Values [][2]any
		}
	}
	must(t, json.Unmarshal(data, &answer))
	for _, r := range answer.Result {
		found := labelled{labels: r.Metric}
		for _, v := range r.Values {
			at, value := v[0].(float64), 0.0
			if value, err = strconv.ParseFloat(fmt.Sprint(v[1]), 64); err == nil && !math.IsNaN(value) && !math.IsInf(value, 0) {
				found.points = append(found.points, [2]float64{at - float64(from.UnixMilli())/1000, value})
			}
		}
		all = append(all, found)
	}
	return all
}
