package yandex

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	operationpb "github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
)

type diskService struct {
	compute.UnimplementedDiskServiceServer
	c *Cloud
}

// Get shows a disk.
func (s diskService) Get(ctx context.Context, ask *compute.GetDiskRequest) (*compute.Disk, error) {
	return diskShelf.get(ctx, s.c, ask.GetDiskId())
}

// List shows the disks of the folder.
func (s diskService) List(ctx context.Context, ask *compute.ListDisksRequest) (*compute.ListDisksResponse, error) {
	all, next, err := diskShelf.list(ctx, s.c, ask)
	return &compute.ListDisksResponse{Disks: all, NextPageToken: next}, err
}

// ListOperations shows the operations of a disk, the newest first.
func (s diskService) ListOperations(ctx context.Context, ask *compute.ListDiskOperationsRequest) (*compute.ListDiskOperationsResponse, error) {
	operations, next, err := s.c.listOperations(ctx, "Disk", ask.GetDiskId(), ask)
	return &compute.ListDiskOperationsResponse{Operations: operations, NextPageToken: next}, err
}

// Create makes a disk, blank or from a snapshot.
func (s diskService) Create(ctx context.Context, ask *compute.CreateDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		d := disk{Disk: Disk{
			Name: ask.GetName(), Description: ask.GetDescription(), Labels: maps.Clone(ask.GetLabels()), Zone: ask.GetZoneId(),
			Type: cmp.Or(ask.GetTypeId(), usualType), Size: ask.GetSize(), BlockSize: cmp.Or(ask.GetBlockSize(), usualBlock),
			Snapshot: ask.GetSnapshotId(), Key: ask.GetKmsKeyId(),
			PlacementGroup: ask.GetDiskPlacementPolicy().GetPlacementGroupId(),
		}}
		if why := c.mayCreate(ask, &d); why != nil {
			return nil, why
		}
		d.ID = c.newID(zonePrefix(d.Zone), "disk", d.Name)
		usual := c.lasts.Create
		if d.Snapshot != "" {
			usual = c.lasts.Restore
		}
		return &job{
			kind: kindCreate, description: "Create disk", disk: d.ID, name: d.Name, lasts: usual, claims: []string{d.ID},
			metadata: &compute.CreateDiskMetadata{DiskId: d.ID},
			accept:   func() error { return c.addDisk(d) },
			finish:   func() proto.Message { return c.showDisk(c.setDiskStatus(d.ID, statusReady)) },
			fail: func() {
				if c.rules.FailedCreateVanishes {
					c.dropDisk(d.ID)
				} else {
					c.setDiskStatus(d.ID, statusError)
				}
			},
		}, nil
	})
}

// mayCreate says why a disk cannot be made, and fills in what comes from its source.
func (c *Cloud) mayCreate(ask *compute.CreateDiskRequest, d *disk) *refusal {
	if why := cmp.Or(
		c.checkFolder(ask.GetFolderId()), checkNaming(d.Name, d.Description, d.Labels), c.checkPlace(d.Zone, d.Type),
		checkBlockSize(d.BlockSize), checkSize(d.Type, d.Size, d.BlockSize, largestDisk),
		checkOptionalID("snapshot_id", d.Snapshot), checkOptionalID("image_id", ask.GetImageId()),
		checkOptionalID("kms_key_id", d.Key), c.checkPlacement(&d.Disk),
	); why != nil {
		return why
	}
	if ask.GetImageId() != "" {
		return notFound.with("Image", ask.GetImageId())
	}
	if d.Snapshot != "" {
		source, found := c.now.snapshots[d.Snapshot]
		switch {
		case !found:
			return notFound.with("Snapshot", d.Snapshot)
		case source.Status != statusReady:
			return wrongState.with("Snapshot", source.ID, source.Status)
		case d.Size < source.DiskSize:
			return bad("size", "Disk size must be at least %d, the size of the snapshot", source.DiskSize)
		}
		d.Content, d.Key = source.Content, cmp.Or(d.Key, source.Key)
	}
	sameName := c.now.diskList(func(other disk) bool { return other.Name == d.Name })
	if d.Name != "" && len(sameName) > 0 && !c.rules.NamesRepeat {
		return nameTaken.with("Disk", d.Name)
	}
	return c.quota(1, d.Size)
}

// quota says why the account has no room for so many more disks and bytes.
func (c *Cloud) quota(disks int, bytes int64) *refusal {
	here := c.now.diskList(func(d disk) bool { return !d.Boot })
	for _, d := range here {
		bytes += d.Size
	}
	switch {
	case disks > 0 && c.rules.DiskLimit > 0 && len(here)+disks > c.rules.DiskLimit:
		return tooManyNumbers.with("compute.disks.count")
	case c.rules.CapacityLimit > 0 && bytes > c.rules.CapacityLimit:
		return tooManyNumbers.with("compute.disks.size")
	}
	return nil
}

// addDisk makes a disk that may be made, with its data.
func (c *Cloud) addDisk(d disk) error {
	c.numbers++
	d.number, d.Status, d.Created, d.file = c.numbers, statusCreating, c.clock.Now(), d.ID
	if err := c.disks.Create(data(d), d.Snapshot); err != nil {
		return err
	}
	c.putDisk(d)
	return nil
}

func (c *Cloud) setDiskStatus(id, status string) disk {
	return c.changeDisk(id, func(d *disk) { d.Status = status })
}

// Delete removes a disk that is free.
func (s diskService) Delete(ctx context.Context, ask *compute.DeleteDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		d, why := diskShelf.existing(c, ask.GetDiskId(), statusReady, statusError)
		if why != nil {
			return nil, why
		}
		if d.Instance != "" {
			return nil, attachedToInstance.with(d.ID)
		}
		return &job{
			kind: kindDelete, description: "Delete disk", disk: d.ID, name: d.Name, lasts: c.lasts.Delete, claims: []string{d.ID},
			metadata: &compute.DeleteDiskMetadata{DiskId: d.ID},
			accept:   func() error { c.setDiskStatus(d.ID, statusDeleting); return nil },
			finish:   func() proto.Message { c.dropDisk(d.ID); return &emptypb.Empty{} },
			fail:     func() { c.setDiskStatus(d.ID, d.Status) },
		}, nil
	})
}

// dropDisk removes a disk and its data.
func (c *Cloud) dropDisk(id string) {
	if d, found := c.now.disks[id]; found {
		c.trouble(id, c.disks.Remove(data(d)))
		c.removeDisk(id)
	}
}

// Update changes what the mask names.
func (s diskService) Update(ctx context.Context, ask *compute.UpdateDiskRequest) (*operationpb.Operation, error) {
	c := s.c
	return c.change(ctx, func() (*job, *refusal) {
		d, why := diskShelf.existing(c, ask.GetDiskId(), statusReady)
		if why == nil {
			why = c.mayUpdate(d, ask)
		}
		if why != nil {
			return nil, why
		}
		asked := func(field string) bool { return slices.Contains(ask.GetUpdateMask().GetPaths(), field) }
		change := func(d *disk) {
			for field, set := range map[string]func(){
				"name":        func() { d.Name = ask.GetName() },
				"description": func() { d.Description = ask.GetDescription() },
				"labels":      func() { d.Labels = maps.Clone(ask.GetLabels()) },
				"size":        func() { d.Size = ask.GetSize() },
			} {
				if asked(field) {
					set()
				}
			}
		}
		j := &job{
			kind: kindUpdate, description: "Update disk", disk: d.ID, name: d.Name, lasts: c.lasts.Update, claims: []string{d.ID},
			metadata: &compute.UpdateDiskMetadata{DiskId: d.ID},
		}
		if asked("size") {
			j.kind, j.lasts, j.instance = kindResize, c.lasts.Resize, d.Instance
			j.early = func() { c.changeDisk(d.ID, change) }
		}
		j.accept = c.onAccept(func() { c.changeDisk(d.ID, change) })
		j.fail = func() {
			c.changeDisk(d.ID, func(now *disk) {
				content := now.Content
				*now = d // no other operation changed it meanwhile
				now.Content = content
			})
		}
		j.finish = func() proto.Message {
			now := c.changeDisk(d.ID, change)
			if asked("size") {
				c.trouble(d.ID, c.disks.Grow(data(now)))
			}
			return c.showDisk(now)
		}
		return j, nil
	})
}

// mayUpdate says why a disk cannot become what is asked for.
func (c *Cloud) mayUpdate(d disk, ask *compute.UpdateDiskRequest) *refusal {
	if why := cmp.Or(
		checkMask(ask.GetUpdateMask(), "name", "description", "labels", "size", "disk_placement_policy"),
		checkNaming(ask.GetName(), ask.GetDescription(), ask.GetLabels()),
	); why != nil {
		return why
	}
	asked := func(field string) bool { return slices.Contains(ask.GetUpdateMask().GetPaths(), field) }
	if asked("name") && ask.GetName() != "" && !c.rules.NamesRepeat {
		if same := c.now.diskList(func(other disk) bool { return other.ID != d.ID && other.Name == ask.GetName() }); len(same) > 0 {
			return nameTaken.with("Disk", ask.GetName())
		}
	}
	if !asked("size") {
		return nil
	}
	if why := checkSize(d.Type, ask.GetSize(), d.BlockSize, largestUpdate); why != nil {
		return why
	}
	machine := c.now.instances[d.Instance]
	switch {
	case ask.GetSize() < d.Size:
		return bad("size", "Disk size can only be increased")
	case d.Instance != "" && machine.Status != statusStopped && c.rules.ResizeRefused:
		return resizeAttached.with(d.ID)
	}
	return c.quota(0, ask.GetSize()-d.Size)
}

// link is how a machine names a device.
func link(device string) string { return "virtio-" + device }

// data names a disk's data as the real cloud names the device.
func data(d disk) disks.Disk { return disks.Disk{ID: d.ID, Device: link(d.file), Size: d.Size} }

// DataFile returns the file with a disk's data, for a test that writes to it while it is free.
func (c *Cloud) DataFile(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, found := c.now.disks[id]
	folder, kept := c.disks.(*disks.Folder)
	if !found || !kept {
		return "", fmt.Errorf("disk %s has no data", id)
	}
	return folder.Path(data(d)), nil
}
