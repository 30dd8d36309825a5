package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/middleware"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// outcomes returns how many observations each pair of labels has.
func outcomes(t *testing.T, reg *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := []string{family.GetName()}
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			counts[strings.Join(labels, " ")] += m.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

func TestObserveCountsEveryCallByItsOutcome(t *testing.T) {
	back := memory.New(memory.Config{})
	reg := prometheus.NewRegistry()
	calls, err := middleware.NewCalls(reg)
	if err != nil {
		t.Fatal(err)
	}
	c := middleware.NewObserve(back, nil, calls)
	vol := create(t, back, small("old"))
	snap := snapshot(t, back, snapshotOf("old", vol.ID))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now())
	defer cancelLate()
	want := map[string]uint64{}
	for call := range repeatable {
		for outcome, ctx := range map[string]context.Context{"canceled": ended, "deadline exceeded": late, "unavailable": t.Context(), "no kind": t.Context()} {
			switch outcome {
			case "unavailable":
				back.Account().Arm(call, memory.Refuse(fault.Unavailable))
			case "no kind":
				back.Account().Arm(call, memory.Refuse(errors.New("broken backend")))
			}
			if err := doCall(ctx, c, call, vol, snap); err == nil {
				t.Errorf("%s = nil, want it to be %s", call, outcome)
			}
			want["cloudblock_cloud_call_duration_seconds call="+string(call)+" kind="+outcome]++
		}
	}
	for _, call := range []memory.Call{memory.CallGetVolume, memory.CallGetVolume, memory.CallDeleteVolume} {
		if err := doCall(t.Context(), c, call, vol, snap); err != nil {
			t.Errorf("%s = %v", call, err)
		}
		want["cloudblock_cloud_call_duration_seconds call="+string(call)+" kind=ok"]++
	}
	got := outcomes(t, reg)
	for labels, n := range want {
		if got[labels] != n {
			t.Errorf("%s: %d, want %d", labels, got[labels], n)
		}
		delete(got, labels)
	}
	for labels, n := range got {
		t.Errorf("%s: %d, want none", labels, n)
	}
}

func TestTheMetricIsRegisteredOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	if _, err := middleware.NewCalls(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := middleware.NewCalls(reg); err == nil {
		t.Error("NewCalls twice on one registry = nil, want an error")
	}
}

func TestObserveLogsIdsAndNothingThatOthersWrote(t *testing.T) {
	const canary = "canary-secret"
	core, logs := observer.New(zapcore.DebugLevel)
	c := middleware.NewObserve(memory.New(memory.Config{}), zap.New(core), nil)
	vol := create(t, c, cloud.CreateVolumeRequest{
		Name: "pvc-1", Size: cloud.GiB,
		Parameters: []cloud.Parameter{{Name: "type", Value: canary}},
		Tags:       []cloud.Tag{{Key: canary, Value: canary}},
	})
	_, err := c.Attach(t.Context(), vol.ID, "no-such-node")
	wantKind(t, "Attach", err, fault.NotFound)

	entries := logs.AllUntimed()
	if len(entries) != 2 {
		t.Fatalf("%d lines, want one for each call", len(entries))
	}
	made, failed := entries[0].ContextMap(), entries[1].ContextMap()
	if made["call"] != "CreateVolume" || made["name"] != "pvc-1" || made["size"] != "1 GiB" || made["kind"] != "ok" || made["error"] != nil {
		t.Errorf("the create is logged as %v", made)
	}
	if failed["call"] != "Attach" || failed["volume_id"] != string(vol.ID) || failed["node_id"] != "no-such-node" ||
		failed["kind"] != "not found" || failed["error"] != err.Error() {
		t.Errorf("the attach is logged as %v", failed)
	}
	for _, e := range entries {
		if e.Level != zapcore.DebugLevel {
			t.Errorf("%s is logged at %s", e.Message, e.Level)
		}
		for key, value := range e.ContextMap() {
			if s, ok := value.(string); ok && strings.Contains(s, canary) {
				t.Errorf("%s holds the canary: %s", key, s)
			}
		}
	}
}
