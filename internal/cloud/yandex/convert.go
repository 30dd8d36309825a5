package yandex

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/tags"
)

// idOf is the id of a disk.
func idOf(d *compute.Disk) cloud.VolumeID { return cloud.VolumeID(d.GetId()) }

// sizeOf is the size of a disk.
func sizeOf(d *compute.Disk) cloud.Bytes { return cloud.Bytes(d.GetSize()) }

// ownStep is what the contract tells of the steps that a disk grows in: nothing of the usual ones.
func ownStep(d *compute.Disk) cloud.Bytes {
	if step := stepOf(d.GetTypeId()); step != usualStep {
		return step
	}
	return 0
}

// volumeOf translates a disk.
func (c *Cloud) volumeOf(d *compute.Disk) cloud.Volume {
	vol := cloud.Volume{
		ID:         idOf(d),
		Name:       d.GetName(),
		Size:       sizeOf(d),
		SizeStep:   ownStep(d),
		Zone:       d.GetZoneId(),
		Source:     sourceOf(d),
		Parameters: parametersOf(d),
		Device:     deviceOf(c.deviceName(idOf(d))),
		Tags:       tags.ReadLabels(d.GetLabels()),
		Health:     healthOf(d),
		Mark:       tags.MarkOfLabels(d.GetLabels()),
	}
	for _, id := range d.GetInstanceIds() {
		vol.AttachedTo = append(vol.AttachedTo, cloud.NodeID(id))
	}
	slices.Sort(vol.AttachedTo)
	return vol
}

// healthOf is what is wrong with a disk: with one in the state ERROR, the API says, "a problem", and it "cannot operate".
func healthOf(d *compute.Disk) cloud.Health {
	if d.GetStatus() != compute.Disk_ERROR {
		return cloud.Health{}
	}
	return cloud.Health{
		Kind: cloud.Inaccessible, Reason: "DiskError",
		Message: fmt.Sprintf("disk %s is in the state ERROR and cannot operate; ask the cloud's support, or restore a snapshot", d.GetId()),
	}
}

// sourceOf is what a disk was made from. A clone goes through a snapshot, which is not what was asked for.
func sourceOf(d *compute.Disk) cloud.Source {
	if id := d.GetLabels()[tags.FromVolume]; id != "" {
		return cloud.Source{Volume: cloud.VolumeID(id)}
	}
	return cloud.Source{Snapshot: cloud.SnapshotID(cmp.Or(d.GetLabels()[tags.FromSnapshot], d.GetSourceSnapshotId()))}
}

// oldestFirst is the order in which disks were made. Every controller has to see the same one.
func oldestFirst(a, b *compute.Disk) int {
	if order := a.GetCreatedAt().AsTime().Compare(b.GetCreatedAt().AsTime()); order != 0 {
		return order
	}
	return strings.Compare(a.GetId(), b.GetId())
}

// snapshotOf translates a snapshot. It can be restored in every zone, so it names none.
func snapshotOf(s *compute.Snapshot) cloud.Snapshot {
	mark := tags.MarkOfLabels(s.GetLabels())
	mark.Temporary = mark.Driver && s.GetLabels()[labelTemporary] != ""
	return cloud.Snapshot{
		ID:      cloud.SnapshotID(s.GetId()),
		Name:    s.GetName(),
		Volume:  cloud.VolumeID(s.GetSourceDiskId()),
		Size:    cloud.Bytes(s.GetDiskSize()),
		Created: s.GetCreatedAt().AsTime(),
		Ready:   s.GetStatus() == compute.Snapshot_READY,
		Mark:    mark,
	}
}
