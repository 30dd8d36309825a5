package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/memory"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var wantKind = expect.Kind

func create(t *testing.T, c cloud.Cloud, name string) cloud.Volume {
	t.Helper()
	vol, err := c.CreateVolume(t.Context(), cloud.CreateVolumeRequest{Name: name, Size: cloud.GiB})
	if err != nil {
		t.Fatalf("CreateVolume(%q) = %v", name, err)
	}
	return vol
}

func TestReadsShowTheStateOfATickAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tick = time.Second
		c := memory.New(memory.Config{ReadLag: tick})
		ctx := t.Context()
		full, err := c.Capacity(ctx, "", nil)
		wantKind(t, "Capacity", err, fault.None)
		vol := create(t, c, "a")
		_, err = c.CreateVolume(ctx, cloud.CreateVolumeRequest{Name: "a", Size: cloud.GiB})
		wantKind(t, "a write, which sees the truth,", err, fault.Conflict)

		time.Sleep(tick - 1)
		_, err = c.GetVolume(ctx, vol.ID)
		wantKind(t, "GetVolume before the tick", err, fault.NotFound)
		_, err = c.FindVolume(ctx, "a")
		wantKind(t, "FindVolume before the tick", err, fault.NotFound)
		if list, err := c.ListVolumes(ctx, cloud.Page{}); err != nil || len(list.Volumes) != 0 {
			t.Errorf("ListVolumes before the tick = %+v, %v", list, err)
		}
		if free, err := c.Capacity(ctx, "", nil); err != nil || free != full {
			t.Errorf("Capacity before the tick = %s, %v, want %s", free, err, full)
		}
		time.Sleep(time.Nanosecond)
		_, err = c.GetVolume(ctx, vol.ID)
		wantKind(t, "GetVolume after the tick", err, fault.None)

		_, err = c.Attach(ctx, vol.ID, "node-1")
		wantKind(t, "Attach", err, fault.None)
		wantKind(t, "DeleteVolume, which sees the truth,", c.DeleteVolume(ctx, vol.ID), fault.Precondition)
		if got, err := c.GetVolume(ctx, vol.ID); err != nil || len(got.AttachedTo) != 0 {
			t.Errorf("GetVolume right after the attach = %+v, %v, want it free", got, err)
		}
		time.Sleep(tick)
		if got, err := c.GetVolume(ctx, vol.ID); err != nil || len(got.AttachedTo) != 1 {
			t.Errorf("GetVolume a tick after the attach = %+v, %v, want it attached", got, err)
		}
	})
}

func TestFaultsMeetTheNextCallsInOrder(t *testing.T) {
	tests := map[string]struct {
		fault memory.Fault
		want  fault.Kind
		made  bool
	}{
		"refused":             {memory.Refuse(fault.Exhausted), fault.Exhausted, false},
		"the request is lost": {memory.LoseRequest(), fault.Uncertain, false},
		"the answer is lost":  {memory.LoseAnswer(), fault.Uncertain, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := memory.New(memory.Config{})
			c.Account().Arm(memory.CallCreateVolume, tc.fault, memory.Refuse(fault.Denied))
			req := cloud.CreateVolumeRequest{Name: "a", Size: cloud.GiB}
			_, err := c.CreateVolume(t.Context(), req)
			wantKind(t, "the first call", err, tc.want)
			_, err = c.FindVolume(t.Context(), "a")
			if made := err == nil; made != tc.made {
				t.Errorf("the volume is there: %v, want %v", made, tc.made)
			}
			_, err = c.CreateVolume(t.Context(), req)
			wantKind(t, "the second call", err, fault.Denied)
			if n := c.Account().Armed(memory.CallCreateVolume); n != 0 {
				t.Errorf("%d faults are left", n)
			}
			create(t, c, "b")
		})
	}
	t.Run("a read that loses its answer", func(t *testing.T) {
		c := memory.New(memory.Config{})
		c.Account().Arm(memory.CallCheck, memory.LoseAnswer())
		wantKind(t, "Check", c.Check(t.Context()), fault.Unavailable)
		wantKind(t, "Check again", c.Check(t.Context()), fault.None)
	})
}

func TestAHeldCallEndsWithItsContextOrItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.New(memory.Config{})
		release := make(chan struct{})
		req := cloud.CreateVolumeRequest{Name: "a", Size: cloud.GiB}
		try := func(f memory.Fault) error {
			c.Account().Arm(memory.CallCreateVolume, f)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.CreateVolume(ctx, req)
			return err
		}
		err := try(memory.Hold(release))
		if !errors.Is(err, context.DeadlineExceeded) || fault.Of(err) != fault.None {
			t.Errorf("held before it was sent: %v, want the context's own error", err)
		}
		_, err = c.FindVolume(t.Context(), "a")
		wantKind(t, "FindVolume of what was never sent", err, fault.NotFound)
		wantKind(t, "held after it was sent", try(memory.HoldAnswer(release)), fault.Uncertain)
		_, err = c.FindVolume(t.Context(), "a")
		wantKind(t, "FindVolume of what was sent", err, fault.None)
		close(release)
		req.Name = "b"
		wantKind(t, "released", try(memory.Hold(release)), fault.None)
	})
}

func TestChangesTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memory.New(memory.Config{OperationTime: time.Minute})
		began := time.Now()
		vol := create(t, c, "a")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("CreateVolume took %s", took)
		}
		began = time.Now()
		snap, err := c.CreateSnapshot(t.Context(), cloud.CreateSnapshotRequest{Name: "s", Volume: vol.ID})
		if took := time.Since(began); err != nil || snap.Ready || took != 0 {
			t.Fatalf("CreateSnapshot = %+v, %v after %s, want one at once and not ready", snap, err, took)
		}
		req := cloud.CreateVolumeRequest{Name: "b", Size: cloud.GiB, Source: cloud.Source{Snapshot: snap.ID}}
		_, err = c.CreateVolume(t.Context(), req)
		wantKind(t, "CreateVolume from a snapshot that is not ready", err, fault.Busy)
		time.Sleep(time.Minute)
		if snap, err = c.GetSnapshot(t.Context(), snap.ID); err != nil || !snap.Ready {
			t.Errorf("GetSnapshot after its time = %+v, %v, want it ready", snap, err)
		}
		_, err = c.CreateVolume(t.Context(), req)
		wantKind(t, "CreateVolume from the ready snapshot", err, fault.None)
	})
}

func TestAnAnswerIsTheCallersOwn(t *testing.T) {
	c := memory.New(memory.Config{})
	req := cloud.CreateVolumeRequest{
		Name: "a", Size: cloud.GiB,
		Parameters: []cloud.Parameter{{Name: "type", Value: "fast"}}, Tags: []cloud.Tag{{Key: "k", Value: "v"}},
	}
	vol, err := c.CreateVolume(t.Context(), req)
	expect.NoError(t, err)
	vol.Parameters[0].Value, vol.Tags[0].Value, req.Tags[0].Key = "changed", "changed", "changed"
	got, err := c.GetVolume(t.Context(), vol.ID)
	if err != nil || got.Parameters[0].Value != "fast" || got.Tags[0] != (cloud.Tag{Key: "k", Value: "v"}) {
		t.Errorf("GetVolume = %+v, %v, want what was asked for", got, err)
	}
}
