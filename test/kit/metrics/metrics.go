// Package metrics reads what the programs show on /metrics.
package metrics

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Samples are the values by series, such as `name{label="value"}`.
type Samples map[string]float64

// Of reads a registry.
func Of(t *testing.T, registry prometheus.Gatherer) Samples {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("the metrics cannot be read: %s", answer.Body)
	}
	return Parse(t, answer.Body.String())
}

var named = regexp.MustCompile(`driver_name="[^"]*",?`)

// Unnamed returns the page /metrics of a program without the label driver_name, which all its series have.
func Unnamed(page string) string {
	return strings.NewReplacer("{}", "", ",}", "}").Replace(named.ReplaceAllString(page, ""))
}

// Parse reads the text format, without the label driver_name.
func Parse(t *testing.T, text string) Samples {
	t.Helper()
	samples := Samples{}
	for line := range strings.Lines(Unnamed(text)) {
		line = strings.TrimSpace(line)
		cut := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || cut < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[cut+1:], 64)
		if err != nil {
			t.Fatalf("sample %q: %v", line, err)
		}
		samples[line[:cut]] = value
	}
	return samples
}

// Want compares some of the samples.
func (s Samples) Want(t *testing.T, want Samples) {
	t.Helper()
	for series, value := range want {
		if got, has := s[series]; !has || got != value {
			t.Errorf("%s is %v (there: %t), want %v", series, got, has, value)
		}
	}
}
