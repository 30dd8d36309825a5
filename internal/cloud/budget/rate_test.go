package budget_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

func TestStandardRate(t *testing.T) {
	now := time.Now()
	tests := map[string]struct {
		header map[string]string
		want   budget.Rate
	}{
		"nothing": {nil, budget.Rate{}},
		"plain names and an epoch": {
			map[string]string{"ratelimit-limit": "5000", "ratelimit-remaining": "4999", "ratelimit-reset": "1444931833"},
			budget.Rate{Limit: 5000, Remaining: 4999, Reset: time.Unix(1444931833, 0)},
		},
		"names with X- and seconds": {
			map[string]string{"X-RateLimit-Limit": "1600", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "60", "Retry-After": "7"},
			budget.Rate{Limit: 1600, Remaining: 0, Reset: now.Add(time.Minute), RetryAfter: 7 * time.Second},
		},
		"a limit without the rest says nothing": {map[string]string{"ratelimit-limit": "5000"}, budget.Rate{}},
		"nonsense says nothing": {
			map[string]string{"ratelimit-limit": "many", "ratelimit-remaining": "-3", "ratelimit-reset": "soon", "Retry-After": "later"},
			budget.Rate{},
		},
		"a date to come back": {
			map[string]string{"Retry-After": now.Add(30 * time.Second).UTC().Format(http.TimeFormat)},
			budget.Rate{RetryAfter: 30 * time.Second},
		},
		"a date that has passed":   {map[string]string{"Retry-After": now.Add(-time.Hour).UTC().Format(http.TimeFormat)}, budget.Rate{}},
		"a wait without any sense": {map[string]string{"Retry-After": "9223372036854775807"}, budget.Rate{RetryAfter: time.Hour}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp := &http.Response{Header: http.Header{}}
			for k, v := range tc.header {
				resp.Header.Set(k, v)
			}
			got := budget.StandardRate(resp)
			near := func(a, b time.Duration) bool { return (a - b).Abs() < 2*time.Second }
			if got.Limit != tc.want.Limit || got.Remaining != tc.want.Remaining ||
				!near(got.RetryAfter, tc.want.RetryAfter) || !near(got.Reset.Sub(tc.want.Reset), 0) {
				t.Errorf("StandardRate = %+v, want %+v", got, tc.want)
			}
		})
	}
}

// BenchmarkAcquire is a request that need not wait.
func BenchmarkAcquire(b *testing.B) {
	g := budget.New(budget.Config{Windows: []budget.Window{{Calls: 1 << 30, Per: time.Hour}}})
	for b.Loop() {
		must(b, g.Acquire(b.Context(), budget.Attach))
		g.Learn(budget.Rate{})
	}
}
