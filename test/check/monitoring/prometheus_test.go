//go:build e2e

// Package monitoring runs a real Prometheus that scrapes both real programs, with the alerts and the dashboard of
// deploy/components/monitoring. It needs root, prometheus and promtool.
package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/drivertest"
)

// target is one thing to scrape, with the labels that the PodMonitor would give it.
type target struct{ pod, address string }

// prometheus is a running Prometheus.
type prometheus struct{ url string }

var duration = regexp.MustCompile(`(for: |\[|:)([0-9]+)([mh])`)

// quick makes a minute of the rules a second, so that a test need not wait for hours. The thresholds stay as they are.
func quick(rules string) string {
	return duration.ReplaceAllStringFunc(rules, func(found string) string {
		parts := duration.FindStringSubmatch(found)
		return parts[1] + parts[2] + map[string]string{"m": "s", "h": "m"}[parts[3]]
	})
}

// startPrometheus scrapes the targets and evaluates the rules each second.
func startPrometheus(t *testing.T, targets []target) *prometheus {
	t.Helper()
	dir, address := t.TempDir(), drivertest.FreeAddress(t)
	config := "global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n" +
		"scrape_configs:\n- job_name: cloudblock\n  static_configs:\n"
	for _, s := range targets {
		config += fmt.Sprintf("  - targets: ['%s']\n    labels: {namespace: cloudblock-test, pod: %s, node: here}\n", s.address, s.pod)
	}
	for name, text := range map[string]string{"prometheus.yaml": config, "rules.yaml": quick(rules(t))} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("prometheus: %v\n%s", err, text)
		}
	})
	p := &prometheus{url: "http://" + address}
	eventually(t, "Prometheus answers", func() bool {
		_, err := p.get(t.Context(), "/api/v1/alerts")
		return err == nil
	})
	return p
}

func (p *prometheus) get(ctx context.Context, path string) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", path, answer.Error)
	}
	return answer.Data, nil
}

// firing returns the alerts that fire now, with their labels.
func (p *prometheus) firing(t *testing.T) map[string]map[string]string {
	t.Helper()
	data, err := p.get(t.Context(), "/api/v1/alerts")
	must(t, err)
	var answer struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	must(t, json.Unmarshal(data, &answer))
	firing := map[string]map[string]string{}
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]] = a.Labels
		}
	}
	return firing
}

// query returns how many numbers a query has for an answer.
func (p *prometheus) query(t *testing.T, query string) (numbers int) {
	t.Helper()
	data, err := p.get(t.Context(), "/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var answer struct{ Result []struct{ Value [2]any } }
	must(t, json.Unmarshal(data, &answer))
	for _, r := range answer.Result {
		if n, err := strconv.ParseFloat(fmt.Sprint(r.Value[1]), 64); err == nil && !math.IsNaN(n) {
			numbers++
		}
	}
	return numbers
}

// fires waits until an alert fires, and returns its labels.
func (p *prometheus) fires(t *testing.T, alert string) (labels map[string]string) {
	t.Helper()
	eventually(t, alert+" fires", func() bool {
		labels = p.firing(t)[alert]
		return labels != nil
	})
	return labels
}

// clears waits until an alert does not fire any more.
func (p *prometheus) clears(t *testing.T, alert string) {
	t.Helper()
	eventually(t, alert+" clears", func() bool { return p.firing(t)[alert] == nil })
}

// patience is more than the minute for which the controller believes that its cloud can be reached.
const patience = 2 * time.Minute

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not after %s: %s", patience, what)
		}
	}
	t.Logf("after %s: %s", time.Since(began).Round(time.Second), what)
}
