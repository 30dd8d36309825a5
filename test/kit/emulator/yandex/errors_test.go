package yandex_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	emulator "github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
)

func labels(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("k%d", i)] = "v"
	}
	return all
}

func TestADiskIsMadeWithinTheDocumentedBounds(t *testing.T) {
	const mib, tib, replicated = int64(1) << 20, int64(1) << 40, 93 * gib
	_, a, _ := start(t, emulator.Options{Rules: emulator.Rules{NamesRepeat: true}})
	for _, row := range []struct {
		name   string
		change func(*compute.CreateDiskRequest)
		want   codes.Code
	}{
		{"a usual disk", func(*compute.CreateDiskRequest) {}, codes.OK},
		{"no name", func(r *compute.CreateDiskRequest) { r.Name = "" }, codes.OK},
		{"the longest name", func(r *compute.CreateDiskRequest) { r.Name = strings.Repeat("a", 63) }, codes.OK},
		{"a longer name", func(r *compute.CreateDiskRequest) { r.Name = strings.Repeat("a", 64) }, codes.InvalidArgument},
		{"a name with a capital", func(r *compute.CreateDiskRequest) { r.Name = "Pvc" }, codes.InvalidArgument},
		{"a name that begins with a digit", func(r *compute.CreateDiskRequest) { r.Name = "1a" }, codes.InvalidArgument},
		{"a name that ends with a hyphen", func(r *compute.CreateDiskRequest) { r.Name = "a-" }, codes.InvalidArgument},
		{"a long description", func(r *compute.CreateDiskRequest) { r.Description = strings.Repeat("a", 257) }, codes.InvalidArgument},
		{"64 labels", func(r *compute.CreateDiskRequest) { r.Labels = labels(64) }, codes.OK},
		{"65 labels", func(r *compute.CreateDiskRequest) { r.Labels = labels(65) }, codes.InvalidArgument},
		{"a label with a capital", func(r *compute.CreateDiskRequest) { r.Labels = map[string]string{"k": "V"} }, codes.InvalidArgument},
		{"a label with all signs", func(r *compute.CreateDiskRequest) { r.Labels = map[string]string{`k-_./\@`: `-_./\@0`} }, codes.OK},
		{"a label's key of 64", func(r *compute.CreateDiskRequest) { r.Labels = map[string]string{strings.Repeat("k", 64): ""} }, codes.InvalidArgument},
		{"a label's value of 64", func(r *compute.CreateDiskRequest) { r.Labels = map[string]string{"k": strings.Repeat("v", 64)} }, codes.InvalidArgument},
		{"no folder", func(r *compute.CreateDiskRequest) { r.FolderId = "" }, codes.InvalidArgument},
		{"another folder", func(r *compute.CreateDiskRequest) { r.FolderId = "b1gsomebodyelses0000" }, codes.PermissionDenied},
		{"no zone", func(r *compute.CreateDiskRequest) { r.ZoneId = "" }, codes.InvalidArgument},
		{"an unknown type", func(r *compute.CreateDiskRequest) { r.TypeId = "floppy" }, codes.InvalidArgument},
		{"the smallest size", func(r *compute.CreateDiskRequest) { r.Size = 4 * mib }, codes.OK},
		{"no size", func(r *compute.CreateDiskRequest) { r.Size = 0 }, codes.InvalidArgument},
		{"a size between the steps", func(r *compute.CreateDiskRequest) { r.Size = 5 * mib }, codes.InvalidArgument},
		{"8 TiB with the usual blocks", func(r *compute.CreateDiskRequest) { r.Size = 8 * tib }, codes.OK},
		{"more than that", func(r *compute.CreateDiskRequest) { r.Size = 8*tib + 4*mib }, codes.InvalidArgument},
		{"16 TiB with blocks of 8 KiB", func(r *compute.CreateDiskRequest) { r.Size, r.BlockSize = 16*tib, 8192 }, codes.OK},
		{"more than 26 TiB", func(r *compute.CreateDiskRequest) { r.Size, r.BlockSize = 26*tib+4*mib, 131072 }, codes.InvalidArgument},
		{"blocks of 6 KiB", func(r *compute.CreateDiskRequest) { r.BlockSize = 6144 }, codes.InvalidArgument},
		{"blocks of 256 KiB", func(r *compute.CreateDiskRequest) { r.BlockSize = 262144 }, codes.InvalidArgument},
		{"a nonreplicated disk", func(r *compute.CreateDiskRequest) { r.TypeId, r.Size = "network-ssd-nonreplicated", replicated }, codes.OK},
		{"a nonreplicated disk between its steps", func(r *compute.CreateDiskRequest) { r.TypeId, r.Size = "network-ssd-nonreplicated", 94*gib }, codes.InvalidArgument},
		{"two steps of io-m3", func(r *compute.CreateDiskRequest) { r.TypeId, r.Size = "network-ssd-io-m3", 2*replicated }, codes.OK},
		{"a snapshot that there is not", func(r *compute.CreateDiskRequest) {
			r.Source = &compute.CreateDiskRequest_SnapshotId{SnapshotId: "fd80000000000000000"}
		}, codes.NotFound},
		{"an image that there is not", func(r *compute.CreateDiskRequest) {
			r.Source = &compute.CreateDiskRequest_ImageId{ImageId: "fd80000000000000000"}
		}, codes.NotFound},
	} {
		if _, err := a.disks.Create(as(t.Context()), request("pvc-1", row.change)); status.Code(err) != row.want {
			t.Errorf("%s: %v, want %s", row.name, err, row.want)
		}
	}
}

// refusals are calls with what they must be told; no text means any.
type refusals []struct {
	name string
	call func() error
	code codes.Code
	text string
}

// check makes the calls, and checks that no operation begins.
func (r refusals) check(t *testing.T, c *emulator.Cloud) {
	t.Helper()
	before := len(c.Operations())
	for _, row := range r {
		refused(t, row.name, row.call(), row.code, row.text)
	}
	if after := len(c.Operations()); after != before {
		t.Errorf("%d operations began", after-before)
	}
}

const invalidState = "Disk %q has an invalid state for this operation: "

func TestAttachesThatCannotBe(t *testing.T) {
	c, a, instance := start(t, emulator.Options{})
	ctx := as(t.Context())
	free, attached := mustCreate(t, a, "free"), mustCreate(t, a, "attached")
	broken, err := c.AddDisk(emulator.Disk{Name: "broken", Status: "ERROR"})
	noError(t, err)
	mustAttach(t, a, attached, instance)
	stopping := c.AddInstance(emulator.Instance{Status: "STOPPING"})
	boot, err := a.instances.Get(ctx, &compute.GetInstanceRequest{InstanceId: instance})
	noError(t, err)
	attachAs := func(disk, instance, device string) func() error {
		return func() error {
			ask := attachRequest(disk, instance)
			ask.AttachedDiskSpec.DeviceName = device
			_, err := a.instances.AttachDisk(ctx, ask)
			return err
		}
	}
	attach := func(disk, instance string) func() error { return attachAs(disk, instance, disk) }
	detach := func(disk, instance string) func() error {
		return func() error { _, err := a.instances.DetachDisk(ctx, detachRequest(disk, instance)); return err }
	}
	refusals{
		{"attach what is broken", attach(broken, instance), codes.FailedPrecondition, fmt.Sprintf(invalidState+"ERROR", broken)},
		{"attach to an instance that is not there", attach(free, "fhm0"), codes.NotFound, "Instance fhm0 not found"},
		{"attach to an instance that stops", attach(free, stopping), codes.FailedPrecondition, ""},
		{"attach without a disk", attach("", instance), codes.InvalidArgument, ""},
		{"attach without saying what", func() error {
			_, err := a.instances.AttachDisk(ctx, &compute.AttachInstanceDiskRequest{InstanceId: instance})
			return err
		}, codes.InvalidArgument, ""},
		{"attach under a name of 21 letters", attachAs(free, instance, strings.Repeat("a", 21)), codes.InvalidArgument, ""},
		{"attach under a name that is taken", attachAs(free, instance, attached), codes.InvalidArgument, ""},
		{"detach what is not there", detach("fhm0", instance), codes.NotFound, ""},
		{"detach the boot disk", detach(boot.GetBootDisk().GetDiskId(), instance), codes.FailedPrecondition, ""},
		{"detach nothing", detach("", instance), codes.InvalidArgument, ""},
	}.check(t, c)
}

func TestChangesThatCannotBe(t *testing.T) {
	c, a, instance := start(t, emulator.Options{})
	ctx := as(t.Context())
	free, attached := mustCreate(t, a, "free"), mustCreate(t, a, "attached")
	mustAttach(t, a, attached, instance)
	mustSnapshot(t, a, attached, "snap-1")
	broken, err := c.AddDisk(emulator.Disk{Name: "broken", Status: "ERROR"})
	noError(t, err)
	remove := func(disk string) func() error {
		return func() error { _, err := a.disks.Delete(ctx, &compute.DeleteDiskRequest{DiskId: disk}); return err }
	}
	update := func(ask *compute.UpdateDiskRequest) func() error {
		return func() error { _, err := a.disks.Update(ctx, ask); return err }
	}
	take := func(disk, name string) func() error {
		return func() error { _, err := a.snapshots.Create(ctx, snapshotRequest(disk, name)); return err }
	}
	refusals{
		{"delete what is not there", remove("fhm0"), codes.NotFound, "Disk fhm0 not found"},
		{"delete nothing", remove(""), codes.InvalidArgument, ""},
		{"grow beyond 4 TiB", update(resizeRequest(attached, 5<<40)), codes.InvalidArgument, ""},
		{"update without a mask", update(&compute.UpdateDiskRequest{DiskId: free, Name: "other"}), codes.InvalidArgument, ""},
		{"update of an unknown field", update(&compute.UpdateDiskRequest{DiskId: free, UpdateMask: mask("zone_id")}), codes.InvalidArgument, ""},
		{"rename to a name that is taken", update(&compute.UpdateDiskRequest{DiskId: free, Name: "attached", UpdateMask: mask("name")}), codes.AlreadyExists, ""},
		{"a second snapshot of a name", take(free, "snap-1"), codes.AlreadyExists, ""},
		{"a snapshot of what is broken", take(broken, "snap-2"), codes.FailedPrecondition, ""},
	}.check(t, c)
}
