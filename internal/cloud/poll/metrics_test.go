package poll_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func TestMetricsCountLooksAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		metrics, err := poll.NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		c := newCloud()
		p := poll.New(poll.Config[string, bool]{Source: c.source(), Usual: map[poll.Kind]time.Duration{"attach": time.Second}, Metrics: metrics})
		defer p.Close()
		c.failing = fault.Unavailable
		var group sync.WaitGroup
		for i := range 5 {
			op := c.begin(fmt.Sprint(i), time.Second)
			group.Go(func() { _, _ = p.Wait(t.Context(), op, finished) })
		}
		time.Sleep(1100 * time.Millisecond)
		if got := gathered(t, reg); got["cloudblock_poll_waiting"] != 5 || got["cloudblock_poll_looks_total many failed"] != 1 {
			t.Errorf("while they wait: %v", got)
		}
		c.set(func() { c.failing = nil })
		group.Wait()
		got := gathered(t, reg)
		if got["cloudblock_poll_waiting"] != 0 || got["cloudblock_poll_looks_total many ok"] != 1 {
			t.Errorf("afterwards: %v", got)
		}
		if _, err := p.Wait(t.Context(), c.begin("well", time.Second), finished); err != nil {
			t.Error(err)
		}
		if got := gathered(t, reg); got["cloudblock_poll_usual_seconds attach"] < 0.9 || got["cloudblock_poll_looks_total one ok"] == 0 {
			t.Errorf("after a good one: %v", got)
		}
		if _, err := poll.NewMetrics(reg); err == nil {
			t.Error("NewMetrics twice on one registry = nil, want an error")
		}
	})
}

func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}
