package yandex_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func TestListsComeInPages(t *testing.T) {
	c, a, _ := start(t, emulator.Options{Rules: emulator.Rules{BootDisksElsewhere: true}})
	var made []string
	for i := range 5 {
		made = append(made, mustCreate(t, a, fmt.Sprintf("pvc-%d", i)))
	}
	slices.Sort(made)
	var found []string
	token, pages := "", 0
	for {
		list, err := a.disks.List(as(t.Context()), &compute.ListDisksRequest{FolderId: c.Folder, PageSize: 2, PageToken: token})
		noError(t, err)
		pages++
		for _, d := range list.GetDisks() {
			found = append(found, d.GetId())
		}
		if pages == 1 { // the last one of this page goes: nothing may be left out for it
			must(t, "Delete")(a.disks.Delete(as(t.Context()), &compute.DeleteDiskRequest{DiskId: found[1]}))
		}
		if token = list.GetNextPageToken(); token == "" {
			break
		}
	}
	if pages != 3 || !slices.Equal(found, made) {
		t.Errorf("%d pages with %v, want three with %v", pages, found, made)
	}
	for name, ask := range map[string]*compute.ListDisksRequest{
		"a page of 1001":      {FolderId: c.Folder, PageSize: 1001},
		"a token made up":     {FolderId: c.Folder, PageToken: "???"},
		"an order by colour":  {FolderId: c.Folder, OrderBy: "colour"},
		"a filter by a label": {FolderId: c.Folder, Filter: `labels.a="b"`},
		"no folder":           {},
	} {
		_, err := a.disks.List(as(t.Context()), ask)
		refused(t, name, err, codes.InvalidArgument, "")
	}
}

func TestEachThingHasItsOperations(t *testing.T) {
	c, a, instance := start(t, emulator.Options{})
	ctx := as(t.Context())
	disk := mustCreate(t, a, "pvc-1")
	mustCreate(t, a, "pvc-2")
	attached := mustAttach(t, a, disk, instance)
	ofDisk, err := a.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: disk, PageSize: 1})
	if err != nil || len(ofDisk.GetOperations()) != 1 || ofDisk.GetOperations()[0].GetId() != attached.GetId() || ofDisk.GetNextPageToken() == "" {
		t.Errorf("operations of the disk = %v, %v, want the attach and another page", ofDisk, err)
	}
	ofInstance, err := a.instances.ListOperations(ctx, &compute.ListInstanceOperationsRequest{InstanceId: instance})
	if err != nil || len(ofInstance.GetOperations()) != 1 {
		t.Errorf("operations of the instance = %v, %v, want the attach", ofInstance, err)
	}
	about := &compute.AttachInstanceDiskMetadata{}
	if err := ofInstance.GetOperations()[0].GetMetadata().UnmarshalTo(about); err != nil || about.GetDiskId() != disk || about.GetInstanceId() != instance {
		t.Errorf("metadata = %v, %v", about, err)
	}
	snapshot := mustSnapshot(t, a, disk, "snap-1")
	ofSnapshot, err := a.snapshots.ListOperations(ctx, &compute.ListSnapshotOperationsRequest{SnapshotId: snapshot})
	if err != nil || len(ofSnapshot.GetOperations()) != 1 {
		t.Errorf("operations of the snapshot = %v, %v, want its making", ofSnapshot, err)
	}
	_, err = a.disks.ListOperations(ctx, &compute.ListDiskOperationsRequest{DiskId: "fhm0"})
	refused(t, "operations of what is not there", err, codes.NotFound, "")
	if list, err := a.snapshots.List(ctx, &compute.ListSnapshotsRequest{FolderId: c.Folder, Filter: `name="snap-1"`}); err != nil || len(list.GetSnapshots()) != 1 {
		t.Errorf("snapshots = %v, %v", list, err)
	}
}
