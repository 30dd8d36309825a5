package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

const source = "../../../deploy/charts/cloudblock-csi/monitoring"

// panel is a panel of the dashboard.
type panel struct {
	Title, Type string
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []threshold }
		}
	}
	Targets []struct{ Expr, LegendFormat string }
	Links   []struct{ Title string }
}

// threshold is a color from a value on, up to the next; the first has no value.
type threshold struct {
	Color string
	Value *json.Number
}

func (s threshold) String() string {
	if s.Value == nil {
		return s.Color
	}
	return s.Color + " from " + s.Value.String()
}

// dashboard returns the panels with queries.
func dashboard(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "dashboard.json"))
	must(t, err)
	var d struct{ Panels []panel }
	must(t, json.Unmarshal(text, &d))
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
}

// ours returns a query of the dashboard with its variables set: every cluster and namespace, and the drivers that match.
func ours(query, drivers string) string {
	return strings.NewReplacer("$cluster", ".*", "$namespace", ".*", "$driver", drivers).Replace(query)
}

// rules returns the groups of the PrometheusRule, as a file of Prometheus.
func rules(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "rules.yaml"))
	must(t, err)
	_, spec, found := strings.Cut(string(text), "\nspec:\n")
	if !found {
		t.Fatal("rules.yaml has no spec")
	}
	return strings.ReplaceAll("\n"+spec, "\n  ", "\n")
}

var (
	alertRule  = regexp.MustCompile(`- alert: (\w+)\n +expr: >-\n((?: {6}.*\n)+)`)
	comparison = regexp.MustCompile(`(==|>|<|<=) ([0-9.]+)`)
)

// comparisons returns the first comparison of each alert's expression, and no text where it has none.
func comparisons(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, found := range alertRule.FindAllStringSubmatch(rules(t), -1) {
		all[found[1]] = comparison.FindString(found[2])
	}
	if named := strings.Count(rules(t), "- alert: "); len(all) != named {
		t.Fatalf("%d alerts of %d have an expression: %v", len(all), named, all)
	}
	return all
}

// TestTheDashboardTurnsRedWhereTheAlertsFire: the thresholds of a panel are those of the first alert that it links to, and each alert has
// a link to its runbook.
func TestTheDashboardTurnsRedWhereTheAlertsFire(t *testing.T) {
	alerts, linked := comparisons(t), map[string]bool{}
	for _, p := range dashboard(t) {
		for _, link := range p.Links {
			linked[strings.TrimPrefix(link.Title, "Runbook: ")] = true
		}
		steps := p.FieldConfig.Defaults.Thresholds.Steps
		if len(steps) == 0 || len(p.Links) == 0 {
			continue
		}
		compared := alerts[strings.TrimPrefix(p.Links[0].Title, "Runbook: ")]
		if strings.Contains(p.Targets[0].Expr, compared) {
			compared = "> 0" // the panel counts where the alert fires
		}
		op, number, _ := strings.Cut(compared, " ")
		want := map[string][2]string{
			"> 0": {"green", "red from 1"}, ">": {"green", "red from " + number}, "== 1": {"green", "red from 1"},
			"<": {"red", "green from " + number}, "== 0": {"red", "green from 1"}, "<= 0": {"red", "green from 1"},
		}
		steady, known := want[compared]
		if !known {
			steady = want[op]
		}
		if got := [2]string{steps[0].String(), steps[len(steps)-1].String()}; len(steps) != 2 || got != steady {
			t.Errorf("panel %q: the thresholds are %v, want %q as the alert (%s)", p.Title, steps, steady, compared)
		}
	}
	for alert := range alerts {
		if !linked[alert] {
			t.Errorf("no panel links to the runbook of %s", alert)
		}
	}
}

// TestTheFirstRowAnswersWhetherItIsWell: it has numbers alone, which turn red.
func TestTheFirstRowAnswersWhetherItIsWell(t *testing.T) {
	var first []string
	for _, p := range dashboard(t) {
		if p.Type != "stat" {
			break
		}
		first = append(first, p.Title)
		if len(p.FieldConfig.Defaults.Thresholds.Steps) != 2 {
			t.Errorf("panel %q has no thresholds", p.Title)
		}
	}
	if len(first) != 6 {
		t.Errorf("the first row has %q, want six numbers", first)
	}
}

// TestEachQueryFollowsTheVariables: a query without them would mix clusters and drivers that share a Prometheus.
func TestEachQueryFollowsTheVariables(t *testing.T) {
	selector := regexp.MustCompile(`\b(cloudblock_\w+|csi_\w*seconds_\w+|kubelet_\w+|kube_\w+|ALERTS)({[^}]*})?`)
	for _, p := range dashboard(t) {
		for _, target := range p.Targets {
			for _, metric := range selector.FindAllString(target.Expr, -1) {
				if !strings.Contains(metric, `cluster=~"$cluster"`) || !strings.HasPrefix(metric, "kube") && !strings.Contains(metric, `driver_name=~"$driver`) {
					t.Errorf("panel %q: %s does not follow the variables", p.Title, metric)
				}
			}
		}
	}
}
