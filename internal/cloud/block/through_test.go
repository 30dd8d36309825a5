package block

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/cloudtest"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/metrics"
)

// copies is a cloud that copies through snapshots, each of which is its name.
type copies struct {
	*Through[string]

	registry    *prometheus.Registry
	there       []string
	make, find  error
	deleted     []string
	deleteFails int // how often
}

func newCopies(t *testing.T, there ...string) *copies {
	t.Helper()
	registry := prometheus.NewRegistry()
	measured, err := ops.NewMetrics(registry)
	cloudtest.Must(t, err)
	runner := ops.New(t.Context(), ops.Config{Busy: wait.Backoff{First: time.Millisecond, Max: time.Millisecond}, Metrics: measured})
	cloudtest.CloseAfter(t, runner.Close)
	c := &copies{registry: registry, there: there}
	c.Through = &Through[string]{
		Leftovers: NewLeftovers(runner, time.Hour, zap.NewNop()),
		Name:      func(request string) string { return "temporary-" + request },
		ID:        func(snap string) cloud.SnapshotID { return cloud.SnapshotID(snap) },
		Make: func(_ context.Context, req cloud.CreateVolumeRequest) (string, error) {
			if c.make != nil {
				return "", c.make
			}
			c.there = append(c.there, "temporary-"+req.Name)
			return "temporary-" + req.Name, nil
		},
		Find: func(_ context.Context, req cloud.CreateVolumeRequest) (string, bool, error) {
			return "temporary-" + req.Name, slices.Contains(c.there, "temporary-"+req.Name), c.find
		},
		Delete: func(ctx context.Context, id cloud.SnapshotID, _ budget.Priority) error {
			if c.deleteFails > 0 {
				c.deleteFails--
				return fault.Unavailable
			}
			c.deleted = append(c.deleted, string(id))
			return ctx.Err()
		},
	}
	return c
}

// A temporary snapshot stays while a repeat of the call needs it, and goes when the copy is whole or will never be.
func TestATemporarySnapshotStaysForTheRepeat(t *testing.T) {
	for name, tc := range map[string]struct {
		restored, want error
		stays          bool
	}{
		"the copy is whole":         {nil, nil, false},
		"the outcome is open":       {fault.Uncertain, fault.Uncertain, true},
		"it did not work now":       {fault.Unavailable, fault.Unavailable, true},
		"something is in the way":   {fault.Busy, fault.Busy, true},
		"the snapshot is gone":      {fault.NotFound, fault.Unavailable, true},
		"it can never be":           {fault.OutOfRange, fault.OutOfRange, false},
		"the zone is another":       {fault.SourceElsewhere, fault.SourceElsewhere, false},
		"the name has become taken": {fault.Conflict, fault.Conflict, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopies(t)
			c.deleteFails = 1
			ctx, cancel := context.WithCancel(t.Context())
			_, err := c.Clone(ctx, cloud.CreateVolumeRequest{Name: "a"}, func(context.Context, string) (cloud.Volume, error) {
				if !c.Has("temporary-a") {
					t.Error("a sweep may remove the snapshot meanwhile")
				}
				cancel() // its removal does not end with the caller
				return cloud.Volume{}, tc.restored
			})
			if fault.Of(err) != fault.Of(tc.want) || len(c.deleted) == 0 != tc.stays || c.Has("temporary-a") {
				t.Errorf("Clone = %v, removed %q, want %v, and that it stays: %v", err, c.deleted, tc.want, tc.stays)
			}
		})
	}
}

func TestATemporarySnapshotOfAnEarlierCallIsUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		there      []string
		make, find error
		want       error
	}{
		"it is there":            {[]string{"temporary-a"}, fault.Conflict, nil, nil},
		"and no other is made":   {[]string{"temporary-a"}, fault.Precondition, nil, nil},
		"the name is another's":  {nil, fault.Conflict, nil, fault.Precondition},
		"there is no room":       {nil, fault.Exhausted, nil, fault.Exhausted},
		"it cannot be found out": {[]string{"temporary-a"}, fault.Conflict, fault.Denied, fault.Unavailable},
		"it was not made":        {[]string{"temporary-a"}, fault.Uncertain, nil, fault.Uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCopies(t, tc.there...)
			c.make, c.find = tc.make, tc.find
			from := ""
			_, err := c.Clone(t.Context(), cloud.CreateVolumeRequest{Name: "a"}, func(_ context.Context, snap string) (cloud.Volume, error) {
				from = snap
				return cloud.Volume{}, nil
			})
			if fault.Of(err) != fault.Of(tc.want) || (from == "temporary-a") != (tc.want == nil) {
				t.Errorf("Clone = %v from %q, want %v", err, from, tc.want)
			}
		})
	}
}

// A sweep removes what is old and not in use, so many at a time that one which fails does not stop the others, and counts what it leaves.
func TestASweepRemovesWhatNoCallNeeds(t *testing.T) {
	c := newCopies(t)
	defer c.Begin("in use")()
	old := time.Now().Add(-2 * time.Hour)
	left := []Leftover{
		c.Leftover("in use", "in use", old, false), c.Leftover("kept", "kept", old, true), c.Leftover("young", "young", time.Now(), false),
	}
	for i := range 2 * maxSwept {
		left = append(left, c.Leftover(fmt.Sprint("old-", i), fmt.Sprint("old-", i), old, false))
	}
	c.deleteFails = 3
	if err := c.Sweep(t.Context(), left); fault.Of(err) != fault.Unavailable {
		t.Errorf("Sweep = %v, want what failed", err)
	}
	if len(c.deleted) != maxSwept-3 || c.deleted[0] != "old-3" {
		t.Errorf("removed are %q, want old-3 and what follows, %d with those that failed", c.deleted, maxSwept)
	}
	metrics.Of(t, c.registry).Want(t, metrics.Samples{"cloudblock_temporary_copies": float64(len(left) - len(c.deleted))})
}
