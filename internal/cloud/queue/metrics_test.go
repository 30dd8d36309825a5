package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/queue"
)

func TestMetricsReturnToZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		metrics, err := queue.NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		value := func(name string) float64 {
			families, _ := reg.Gather()
			for _, f := range families {
				if f.GetName() == name {
					return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
				}
			}
			t.Fatalf("no metric %s", name)
			return 0
		}
		m, q := newMachines(2*time.Second), queue.New(queue.Config{Capacity: 2, Metrics: metrics})
		defer q.Close()
		if err := m.change("a", "foreign").Send(t.Context()); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i := range 6 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
			defer cancel()
			group.Go(func() { _ = q.Do(ctx, m.change([]string{"a", "b", "c"}[i%3], "x")) })
		}
		time.Sleep(100 * time.Millisecond)
		if held, waits := value("cloudblock_queue_held"), value("cloudblock_queue_waiting"); held == 0 || waits == 0 {
			t.Errorf("held %v, waiting %v, want some", held, waits)
		}
		group.Wait()
		time.Sleep(time.Minute)
		if held, waits, busy := value("cloudblock_queue_held"), value("cloudblock_queue_waiting"), value("cloudblock_queue_busy_total"); held != 0 || waits != 0 || int(busy) != m.refused {
			t.Errorf("held %v, waiting %v, busy %v, want 0, 0, %d", held, waits, busy, m.refused)
		}
		if _, err := queue.NewMetrics(reg); err == nil {
			t.Error("NewMetrics twice on one registry = nil, want an error")
		}
	})
}

// BenchmarkQueue is one change through a queue in which a thousand others wait for other keys.
func BenchmarkQueue(b *testing.B) {
	q := queue.New(queue.Config{})
	defer q.Close()
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	slot, _ := q.Acquire(ctx, "held")
	for range 1000 {
		group.Go(func() { _, _ = q.Acquire(ctx, "held") })
	}
	for b.Loop() {
		s, err := q.Acquire(ctx, "free")
		if err != nil {
			b.Fatal(err)
		}
		s.Release()
	}
	cancel()
	group.Wait()
	slot.Release()
}
