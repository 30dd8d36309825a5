package yandex_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
		if err != nil {
			t.Fatal(err)
		}
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

func TestDisksAreFilteredAndOrdered(t *testing.T) {
	simulated(t, emulator.Options{Rules: emulator.Rules{NamesRepeat: true, FilterFields: []string{"name", "zone_id"}}}, func(t *testing.T, c *emulator.Cloud, a *api, _ string) {
		names := map[string]string{}
		for _, name := range []string{"b", "a", "c", "a"} {
			names[mustCreate(t, a, name, func(r *compute.CreateDiskRequest) {
				if name == "c" {
					r.ZoneId = "ru-central1-b"
				}
			})] = name
			time.Sleep(time.Minute)
		}
		for _, row := range []struct {
			filter, order string
			want          []string // the names, sorted unless there is an order
			code          codes.Code
		}{
			{filter: `name="a"`, want: []string{"a", "a"}},
			{filter: `name = 'a' AND zone_id = "ru-central1-b"`},
			{filter: `name != "a" AND name != ""`, want: []string{"b", "c"}},
			{filter: `name IN ("a", "c")`, want: []string{"a", "a", "c"}},
			{filter: `name NOT IN ("a","") AND zone_id IN ("ru-central1-b")`, want: []string{"c"}},
			{filter: `name = "\"a"`},
			{filter: `name IN ("b","a","c")`, order: "createdAt desc", want: []string{"a", "c", "a", "b"}},
			{filter: `name IN ("b","a","c")`, order: "name", want: []string{"a", "a", "b", "c"}},
			{filter: `name = a`, code: codes.InvalidArgument},
			{filter: `name = "a" OR name = "b"`, code: codes.InvalidArgument},
			{filter: `name = "a" AND`, code: codes.InvalidArgument},
			{filter: `name IN ("a"`, code: codes.InvalidArgument},
			{filter: `name IN "a"`, code: codes.InvalidArgument},
			{filter: `colour = "a"`, code: codes.InvalidArgument},
		} {
			list, err := a.disks.List(as(t.Context()), &compute.ListDisksRequest{FolderId: c.Folder, Filter: row.filter, OrderBy: row.order})
			var got []string
			for _, d := range list.GetDisks() {
				got = append(got, names[d.GetId()])
			}
			if row.order == "" {
				slices.Sort(got)
			}
			if status.Code(err) != row.code || !slices.Equal(got, row.want) {
				t.Errorf("List(%s) by %q = %v, %v, want %v, %s", row.filter, row.order, got, err, row.want, row.code)
			}
		}
	})
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

func TestTypesAndZonesAreListed(t *testing.T) {
	_, a, instance := start(t, emulator.Options{Zones: map[string]emulator.Zone{
		emulator.DefaultZone: {}, "ru-central1-b": {Down: true}, "ru-central1-d": {DiskTypes: []string{"network-ssd"}},
	}})
	ctx := as(t.Context())
	types, err := a.types.List(ctx, &compute.ListDiskTypesRequest{})
	if err != nil || len(types.GetDiskTypes()) != 4 {
		t.Errorf("types = %v, %v", types, err)
	}
	for id, want := range map[string]int{"network-ssd": 3, "network-hdd": 2} {
		if kind, err := a.types.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: id}); err != nil || len(kind.GetZoneIds()) != want {
			t.Errorf("type %s = %v, %v, want %d zones", id, kind, err, want)
		}
	}
	_, err = a.types.Get(ctx, &compute.GetDiskTypeRequest{DiskTypeId: "floppy"})
	refused(t, "an unknown type", err, codes.NotFound, "")
	zones, err := a.zones.List(ctx, &compute.ListZonesRequest{})
	if err != nil || len(zones.GetZones()) != 3 || zones.GetZones()[0].GetRegionId() != "ru-central1" {
		t.Errorf("zones = %v, %v", zones, err)
	}
	if zone, err := a.zones.Get(ctx, &compute.GetZoneRequest{ZoneId: "ru-central1-b"}); err != nil || zone.GetStatus() != compute.Zone_DOWN {
		t.Errorf("zone = %v, %v, want it down", zone, err)
	}
	_, err = a.zones.Get(ctx, &compute.GetZoneRequest{ZoneId: "us-east-1a"})
	refused(t, "an unknown zone", err, codes.NotFound, "")
	list, err := a.instances.List(ctx, &compute.ListInstancesRequest{FolderId: emulator.DefaultFolder})
	if err != nil || len(list.GetInstances()) != 1 || list.GetInstances()[0].GetId() != instance {
		t.Errorf("instances = %v, %v", list, err)
	}
}
