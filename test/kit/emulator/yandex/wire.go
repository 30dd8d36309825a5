package yandex

import (
	"context"
	"strings"
	"time"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The beginnings of ids. That of a disk or an instance says where it is.
const snapshotPrefix = "fd8"

func zonePrefix(zone string) string {
	switch zone[max(0, len(zone)-1):] {
	case "a":
		return "fhm"
	case "b":
		return "epd"
	case "d":
		return "fv4"
	}
	return "f9z"
}

// newID returns an id for the next thing of a kind with a name: 20 letters and digits, so that a disk's can
// be a device name.
func (c *Cloud) newID(prefix, kind, name string) string {
	const length = 17
	return prefix + strings.ReplaceAll(c.dice.UUID(kind, name), "-", "")[:length]
}

// stamp is a time as the API shows it, to the second.
func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t.Truncate(time.Second)) }

func diskRow(d disk) row { return row{id: d.ID, name: d.Name, status: d.Status} }

func snapshotRow(s snapshot) row { return row{id: s.ID, name: s.Name, status: s.Status} }

func (c *Cloud) showDisk(d disk) *compute.Disk {
	shown := &compute.Disk{
		Id: d.ID, FolderId: c.Folder, CreatedAt: stamp(d.Created), Name: d.Name, Description: d.Description, Labels: d.Labels,
		TypeId: d.Type, ZoneId: d.Zone, Size: d.Size, BlockSize: d.BlockSize,
		Status: compute.Disk_Status(compute.Disk_Status_value[d.Status]), DiskPlacementPolicy: d.policy(),
	}
	switch {
	case d.Snapshot != "":
		shown.Source = &compute.Disk_SourceSnapshotId{SourceSnapshotId: d.Snapshot}
	case d.Image != "":
		shown.Source = &compute.Disk_SourceImageId{SourceImageId: d.Image}
	}
	if d.Instance != "" {
		shown.InstanceIds = []string{d.Instance}
	}
	if d.Key != "" {
		shown.KmsKey = &compute.KMSKey{KeyId: d.Key, VersionId: d.Key}
	}
	return shown
}

func (c *Cloud) showSnapshot(s snapshot) *compute.Snapshot {
	shown := &compute.Snapshot{
		Id: s.ID, FolderId: c.Folder, CreatedAt: stamp(s.Created), Name: s.Name, Description: s.Description, Labels: s.Labels,
		DiskSize: s.DiskSize, SourceDiskId: s.Disk, Status: compute.Snapshot_Status(compute.Snapshot_Status_value[s.Status]),
	}
	if s.Status == statusReady {
		shown.StorageSize = s.DiskSize / 8 // what was written; nobody counts that here, so it is a plausible part
	}
	if s.Key != "" {
		shown.KmsKey = &compute.KMSKey{KeyId: s.Key, VersionId: s.Key}
	}
	return shown
}

func (c *Cloud) showInstance(view *state, i Instance) *compute.Instance {
	shown := &compute.Instance{
		Id: i.ID, FolderId: c.Folder, Name: i.Name, ZoneId: i.Zone, PlatformId: platform, Fqdn: i.Name + ".ru-central1.internal",
		Resources:          &compute.Resources{Cores: int64(i.Cores), Memory: int64(i.Cores) * 4 * gib, CoreFraction: 100},
		Status:             compute.Instance_Status(compute.Instance_Status_value[i.Status]),
		HardwareGeneration: generation(i.Generation),
	}
	if !i.NoServiceAccount {
		shown.ServiceAccountId = serviceAccount
	}
	for _, d := range view.attachedTo(i.ID) {
		at := &compute.AttachedDisk{DiskId: d.ID, DeviceName: d.Device, Mode: compute.AttachedDisk_READ_WRITE, AutoDelete: d.Boot}
		if d.ReadOnly {
			at.Mode = compute.AttachedDisk_READ_ONLY
		}
		if d.Boot {
			shown.BootDisk = at
		} else {
			shown.SecondaryDisks = append(shown.SecondaryDisks, at)
		}
	}
	return shown
}

func generation(name string) *compute.HardwareGeneration {
	legacy := func(topology compute.PCITopology) *compute.HardwareGeneration {
		return &compute.HardwareGeneration{Features: &compute.HardwareGeneration_LegacyFeatures{
			LegacyFeatures: &compute.LegacyHardwareFeatures{PciTopology: topology},
		}}
	}
	switch name {
	case Generation11:
		return legacy(compute.PCITopology_PCI_TOPOLOGY_V1)
	case Generation12:
		return legacy(compute.PCITopology_PCI_TOPOLOGY_V2)
	case Generation2:
		return &compute.HardwareGeneration{Features: &compute.HardwareGeneration_Generation2Features{
			Generation2Features: &compute.Generation2HardwareFeatures{},
		}}
	}
	return nil
}

// showOperation is nil for one that there is not.
func showOperation(o operation) *operationpb.Operation {
	if o.id == "" {
		return nil
	}
	shown := &operationpb.Operation{
		Id: o.id, Description: o.description, CreatedAt: stamp(o.created), CreatedBy: serviceAccount, ModifiedAt: stamp(o.modified),
		Done: o.done, Metadata: o.metadata,
	}
	switch {
	case o.failure != nil:
		shown.Result = &operationpb.Operation_Error{Error: o.failure}
	case o.done:
		shown.Result = &operationpb.Operation_Response{Response: o.response}
	}
	return shown
}

// listOperations shows the operations of a thing that exists.
func (c *Cloud) listOperations(ctx context.Context, kind, id string, ask paged) (shown []*operationpb.Operation, next string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := checkID(strings.ToLower(kind)+"_id", id); why != nil {
		return nil, "", c.refuse(*why)
	}
	view := c.view(effectOf(ctx))
	_, isDisk := view.disks[id]
	_, isSnapshot := view.snapshots[id]
	_, isInstance := view.instances[id]
	if !isDisk && !isSnapshot && !isInstance {
		return nil, "", c.refuse(notFound.with(kind, id))
	}
	all := view.operationList(func(o operation) bool {
		return !c.expired(o) && (o.snap == id || o.onto == id || o.disk == id && (!c.rules.OperationsApart || !o.moves))
	})
	page, next, why := pageOf(c, all, func(o operation) string { return o.id }, ask)
	if why != nil {
		return nil, "", c.refuse(*why)
	}
	for _, o := range page {
		shown = append(shown, showOperation(o))
	}
	return shown, next, nil
}
