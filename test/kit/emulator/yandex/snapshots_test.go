package yandex_test

import (
	"maps"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func mustSeeSnapshot(t *testing.T, a *api, id string) *compute.Snapshot {
	t.Helper()
	s, err := a.snapshots.Get(as(t.Context()), &compute.GetSnapshotRequest{SnapshotId: id})
	if err != nil {
		t.Fatalf("Get(%s) = %v", id, err)
	}
	return s
}

func from(snapshot string) func(*compute.CreateDiskRequest) {
	return func(r *compute.CreateDiskRequest) {
		r.Source = &compute.CreateDiskRequest_SnapshotId{SnapshotId: snapshot}
	}
}

func TestASnapshotBecomesADiskAnywhere(t *testing.T) {
	opts := emulator.Options{Durations: emulator.Durations{Snapshot: clock.Fixed(time.Minute)}}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
		ctx := as(t.Context())
		source := mustCreate(t, a, "pvc-1")
		mustAttach(t, a, source, instance)
		c.SetContent(source, "first")
		snapshot := mustSnapshot(t, a, source, "snap-1")
		c.SetContent(source, "second")
		made := mustSeeSnapshot(t, a, snapshot)
		if made.GetStatus() != compute.Snapshot_CREATING || made.GetDiskSize() != gib || made.GetSourceDiskId() != source {
			t.Errorf("Get() = %v, want it being made", made)
		}
		_, err := a.disks.Create(ctx, request("too-early", from(snapshot)))
		refused(t, "a restore from what is being made", err, codes.FailedPrecondition, "")
		time.Sleep(2 * time.Minute)
		if made = mustSeeSnapshot(t, a, snapshot); made.GetStatus() != compute.Snapshot_READY || made.GetStorageSize() == 0 {
			t.Errorf("Get() = %v, want it ready", made)
		}
		restored := mustCreate(t, a, "pvc-2", from(snapshot), func(r *compute.CreateDiskRequest) {
			r.ZoneId, r.Size = "ru-central1-d", 4*gib
		})
		if d := mustSee(t, a, restored); d.GetSourceSnapshotId() != snapshot || d.GetZoneId() != "ru-central1-d" || d.GetSize() != 4*gib {
			t.Errorf("Get() = %v, want a larger disk in another zone", d)
		}
		if d, _ := c.Disk(restored); d.Content != "first" {
			t.Errorf("the disk holds %q, want what its source held when the snapshot was asked for", d.Content)
		}
		must(t, "Delete")(a.snapshots.Delete(ctx, &compute.DeleteSnapshotRequest{SnapshotId: snapshot}))
		_, err = a.snapshots.Get(ctx, &compute.GetSnapshotRequest{SnapshotId: snapshot})
		refused(t, "a deleted snapshot", err, codes.NotFound, "")
		if len(c.Disks()) != 2 || len(c.Snapshots()) != 0 {
			t.Errorf("disks %v, snapshots %v, want both disks", c.Disks(), c.Snapshots())
		}
	})
}

func TestUpdatesReplaceWhatTheMaskNames(t *testing.T) {
	c, a, _ := start(t, emulator.Options{})
	ctx := as(t.Context())
	disk := mustCreate(t, a, "pvc-1", func(r *compute.CreateDiskRequest) {
		r.Description, r.Labels = "mine", map[string]string{"a": "1", "b": "2"}
	})
	labels := map[string]string{"b": "3"}
	must(t, "Update")(a.disks.Update(ctx, &compute.UpdateDiskRequest{
		DiskId: disk, Name: "ignored", Labels: labels, Size: 2 * gib, UpdateMask: mask("labels", "size"),
	}))
	if d, _ := c.Disk(disk); d.Name != "pvc-1" || d.Description != "mine" || d.Size != 2*gib || !maps.Equal(d.Labels, labels) {
		t.Errorf("disk = %+v, want the labels and the size changed and nothing else", d)
	}
}

func TestAFailedOperationLeavesThingsAsTheyWere(t *testing.T) {
	c, a, instance := start(t, emulator.Options{Rules: emulator.Rules{ArrivesDone: true, ChangeOnAccept: true, FailedCreateVanishes: true}})
	ctx := as(t.Context())
	disk := mustCreate(t, a, "pvc-1")
	snapshot := mustSnapshot(t, a, disk, "snap-1")
	before, _ := c.Disk(disk)
	c.Arm(emulator.Fault{Effect: errored("", "")})
	for _, op := range []interface{ GetDone() bool }{
		mustAttach(t, a, disk, instance),
		must(t, "Update")(a.disks.Update(ctx, resizeRequest(disk, 2*gib))),
		must(t, "Delete")(a.disks.Delete(ctx, &compute.DeleteDiskRequest{DiskId: disk})),
		must(t, "Delete")(a.snapshots.Delete(ctx, &compute.DeleteSnapshotRequest{SnapshotId: snapshot})),
		must(t, "Create")(a.disks.Create(ctx, request("pvc-2"))),
		must(t, "Create")(a.snapshots.Create(ctx, snapshotRequest(disk, "snap-2"))),
	} {
		if !op.GetDone() {
			t.Errorf("%v is not done", op)
		}
	}
	after, _ := c.Disk(disk)
	if before.Size != after.Size || after.Instance != "" || after.Status != "READY" || len(c.Disks()) != 1 {
		t.Errorf("disks = %+v, want the one as it was: %+v", c.Disks(), before)
	}
	if all := c.Snapshots(); len(all) != 1 || all[0].Status != "READY" {
		t.Errorf("snapshots = %+v, want the one as it was", all)
	}
	c.Disarm()
	mustAttach(t, a, disk, instance)
	c.Arm(emulator.Fault{Effect: errored("", "")})
	must(t, "DetachDisk")(a.instances.DetachDisk(ctx, detachRequest(disk, instance)))
	if got := stands(mustSee(t, a, disk)); got != "READY "+instance {
		t.Errorf("the disk is %q after a detach that failed, want it attached", got)
	}
}
