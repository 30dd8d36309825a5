package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/block"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// FindVolume returns the disk made under this request name, when it is READY. Several are left to the operator, since
// each of them may have been returned, and so is a disk in ERROR: whether there is anything on it is not known.
func (c *Cloud) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	same, err := c.disksNamed(ctx, c.cloudName(name))
	if err != nil {
		return cloud.Volume{}, err
	}
	if ours := c.disksFor(name, same); len(ours) > 1 {
		return cloud.Volume{}, fmt.Errorf("find volume %q: %w", name, errDuplicates(ours))
	}
	d, err := block.Find(name, same, func(d *compute.Disk) bool { return c.owner.MadeFor(name, d.GetLabels()) },
		func(d *compute.Disk) string { return "disk " + d.GetId() + " (see its labels)" })
	if err != nil {
		return cloud.Volume{}, err
	}
	return c.whenReady(ctx, d)
}

// whenReady reads a disk that was found again, when nothing is under way with it any more and it can be attached. The size that shows until
// then may be one that a growth takes back (failure C5).
func (c *Cloud) whenReady(ctx context.Context, found *compute.Disk) (cloud.Volume, error) {
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	id := idOf(found)
	d, err := ops.Settle(ctx, c.ops, diskKey(id), func(ctx context.Context) (*compute.Disk, error) { return c.findDisk(ctx, id, budget.Read) })
	switch {
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("disk %s was found, and is changing: %w: %w", id, fault.Unavailable, err)
	case d == nil:
		return cloud.Volume{}, fmt.Errorf("disk %s was found, and is gone: %w", id, fault.Unavailable)
	case d.GetStatus() != compute.Disk_READY:
		return cloud.Volume{}, notReady(d)
	}
	return c.volumeOf(d), nil
}

// notReady says what is wrong with a disk that cannot be attached.
func notReady(d *compute.Disk) error {
	if d.GetStatus() == compute.Disk_CREATING || d.GetStatus() == compute.Disk_DELETING {
		return fmt.Errorf("disk %s (%s) is in the state %s: %w", d.GetId(), d.GetName(), d.GetStatus(), fault.Unavailable)
	}
	return fmt.Errorf("disk %s (%s) is in the state %s; look at it in the console, and delete it there if it holds nothing that is needed: %w",
		d.GetId(), d.GetName(), d.GetStatus(), fault.Unavailable)
}

// errDuplicates is the answer for a request that several disks were made for.
func errDuplicates(disks []*compute.Disk) error {
	ids := make([]string, 0, len(disks))
	for _, d := range disks {
		ids = append(ids, d.GetId())
	}
	return fmt.Errorf("the disks %s have the name %s of this request, and each of them may have been returned for it; "+
		"delete the one that no PersistentVolume has as its volumeHandle: %w", strings.Join(ids, " and "), disks[0].GetName(), fault.Unavailable)
}

// readDisk reads one disk. fault.NotFound when there is none.
func (c *Cloud) readDisk(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*compute.Disk, error) {
	d, err := c.disks.Get(ctx, &compute.GetDiskRequest{DiskId: string(id)}, priority(p))
	switch {
	case err != nil:
		return nil, about(err, "read disk %s", id)
	case d.GetId() != string(id):
		return nil, fmt.Errorf("read disk %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return d, nil
}

// findDisk is readDisk with a nil for a disk that does not exist.
func (c *Cloud) findDisk(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*compute.Disk, error) {
	d, err := c.readDisk(ctx, id, p)
	if saysNone(err) {
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return d, err
}

// disksNamed returns the disks with exactly this name, oldest first, without those that are being deleted.
func (c *Cloud) disksNamed(ctx context.Context, name string) ([]*compute.Disk, error) {
	same, _, err := allPages(ctx, func(ctx context.Context, token string) ([]*compute.Disk, string, error) {
		list, err := c.disks.List(ctx, &compute.ListDisksRequest{
			FolderId: c.folder, PageSize: perPage, PageToken: token, Filter: fmt.Sprintf("name=%q", name),
		})
		return list.GetDisks(), list.GetNextPageToken(), err
	})
	if err != nil {
		return nil, about(err, "find disks named %s", name)
	}
	same = slices.DeleteFunc(same, func(d *compute.Disk) bool { return d.GetName() != name || d.GetStatus() == compute.Disk_DELETING })
	slices.SortFunc(same, oldestFirst)
	return same, nil
}

// disksFor returns those of some disks that this cluster made for a request.
func (c *Cloud) disksFor(request string, of []*compute.Disk) []*compute.Disk {
	return slices.DeleteFunc(slices.Clone(of), func(d *compute.Disk) bool { return !c.owner.MadeFor(request, d.GetLabels()) })
}
