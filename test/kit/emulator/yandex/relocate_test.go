package yandex_test

import (
	"os"
	"testing"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func relocation(disk, zone string) *compute.RelocateDiskRequest {
	return &compute.RelocateDiskRequest{DiskId: disk, DestinationZoneId: zone}
}

// A free disk moves with its id, its data and its snapshots, and shows the old zone until then; meanwhile it takes no other operation.
func TestADiskMovesToAnotherZone(t *testing.T) {
	dir := t.TempDir()
	opts := emulator.Options{DataDir: dir, Durations: emulator.Durations{Relocate: clock.Fixed(10 * time.Minute)}}
	simulated(t, opts, func(t *testing.T, c *emulator.Cloud, a *api, instance string) {
		disk := mustCreate(t, a, "pvc-1")
		file, err := c.DataFile(disk)
		if err == nil {
			err = os.WriteFile(file, []byte("data"), 0o600)
		}
		noError(t, err)
		op := must(t, "Relocate")(a.disks.Relocate(as(t.Context()), relocation(disk, "ru-central1-b")))
		about := &compute.RelocateDiskMetadata{}
		if err := op.GetMetadata().UnmarshalTo(about); err != nil || about.GetDiskId() != disk ||
			about.GetSourceZoneId() != emulator.DefaultZone || about.GetDestinationZoneId() != "ru-central1-b" || op.GetDone() {
			t.Errorf("the operation is %v, %v", op, err)
		}
		_, err = a.disks.Relocate(as(t.Context()), relocation(disk, "ru-central1-d"))
		refused(t, "a second move", err, codes.FailedPrecondition, "")
		_, err = a.instances.AttachDisk(as(t.Context()), attachRequest(disk, instance))
		refused(t, "an attach meanwhile", err, codes.FailedPrecondition, "")
		if got := mustSee(t, a, disk).GetZoneId(); got != emulator.DefaultZone {
			t.Errorf("while it is moved the disk is in %s", got)
		}
		time.Sleep(11 * time.Minute)
		if got := mustSee(t, a, disk); got.GetZoneId() != "ru-central1-b" || len(c.Disks()) != 1 {
			t.Errorf("the disk is %v, want it alone in the other zone", got)
		}
		file, err = c.DataFile(disk)
		noError(t, err)
		if data, err := os.ReadFile(file); err != nil || string(data) != "data" {
			t.Errorf("the data is %q, %v", data, err)
		}
		list, err := a.disks.ListOperations(as(t.Context()), &compute.ListDiskOperationsRequest{DiskId: disk})
		if err != nil || list.GetOperations()[0].GetId() != op.GetId() {
			t.Errorf("the disk's operations are %v, %v, want the move among them", list, err)
		}
		_, err = a.instances.AttachDisk(as(t.Context()), attachRequest(disk, instance))
		refused(t, "an attach in the old zone", err, codes.FailedPrecondition, "")
		noError(t, c.RelocateInstance(instance, "ru-central1-b"))
		mustAttach(t, a, disk, instance)
		if err := c.RelocateInstance(instance, "ru-central1-d"); err == nil {
			t.Error("an instance with a disk was moved")
		}
	})
}

func TestADiskThatDoesNotMove(t *testing.T) {
	c, a, instance := start(t, emulator.Options{Zones: map[string]emulator.Zone{
		emulator.DefaultZone: {}, "ru-central1-b": {}, "ru-central1-d": {DiskTypes: []string{"network-ssd"}},
	}})
	free, attached := mustCreate(t, a, "free"), mustCreate(t, a, "attached")
	mustAttach(t, a, attached, instance)
	group := c.AddPlacementGroup(emulator.PlacementGroup{})
	grouped := mustCreate(t, a, "grouped", func(ask *compute.CreateDiskRequest) {
		ask.TypeId, ask.Size = "network-ssd-nonreplicated", 93*gib
		ask.DiskPlacementPolicy = &compute.DiskPlacementPolicy{PlacementGroupId: group}
	})
	for name, row := range map[string]struct {
		disk, zone string
		want       codes.Code
	}{
		"an attached one":            {attached, "ru-central1-b", codes.FailedPrecondition},
		"to no zone":                 {free, "", codes.InvalidArgument},
		"to an unknown zone":         {free, "ru-central1-x", codes.InvalidArgument},
		"to the zone where it is":    {free, emulator.DefaultZone, codes.InvalidArgument},
		"to a zone without its type": {free, "ru-central1-d", codes.InvalidArgument},
		"out of its placement group": {grouped, "ru-central1-b", codes.InvalidArgument},
		"one that there is not":      {"epd00000000000000000", "ru-central1-b", codes.NotFound},
	} {
		_, err := a.disks.Relocate(as(t.Context()), relocation(row.disk, row.zone))
		refused(t, name, err, row.want, "")
	}
	ask := relocation(grouped, "ru-central1-b")
	ask.DiskPlacementPolicy = &compute.DiskPlacementPolicy{PlacementGroupId: c.AddPlacementGroup(emulator.PlacementGroup{Zone: "ru-central1-b"})}
	op := must(t, "Relocate")(a.disks.Relocate(as(t.Context()), ask))
	for !op.GetDone() {
		op = must(t, "Get")(a.operations.Get(as(t.Context()), &operationpb.GetOperationRequest{OperationId: op.GetId()}))
	}
	if got := mustSee(t, a, grouped); got.GetZoneId() != "ru-central1-b" || got.GetDiskPlacementPolicy().GetPlacementGroupId() == group {
		t.Errorf("the disk is %v, want it in the other group", got)
	}
}
