package yandex

import (
	"context"
	"fmt"
	"slices"
	"strings"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/api"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/wait"
)

// notReady returns the error for a disk that cannot be attached.
func notReady(d *compute.Disk) error {
	if d.GetStatus() == compute.Disk_CREATING || d.GetStatus() == compute.Disk_DELETING {
		return fmt.Errorf("disk %s (%s) is in the state %s: %w", d.GetId(), d.GetName(), d.GetStatus(), fault.Unavailable)
	}
	return fmt.Errorf("disk %s (%s) is in the state %s; look at it in the console, and delete it there if it holds nothing that is needed: %w",
		d.GetId(), d.GetName(), d.GetStatus(), fault.Unavailable)
}

// errDuplicates is the error for a request with several disks.
func errDuplicates(disks []*compute.Disk) error {
	ids := make([]string, 0, len(disks))
	for _, d := range disks {
		ids = append(ids, d.GetId())
	}
	return fmt.Errorf("the disks %s have the name %s of this request, and each of them may have been returned for it; "+
		"delete the one that no PersistentVolume has as its volumeHandle: %w", strings.Join(ids, " and "), disks[0].GetName(), fault.Unavailable)
}

// readDisk reads a disk; fault.NotFound if there is none.
func (c *Cloud) readDisk(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*compute.Disk, error) {
	d, err := c.disks.Get(ctx, &compute.GetDiskRequest{DiskId: string(id)}, priority(p))
	switch {
	case err != nil:
		return nil, wrap(err, "read disk %s", id)
	case d.GetId() != string(id):
		return nil, fmt.Errorf("read disk %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return d, nil
}

// findDisk reads a disk; nil if there is none.
func (c *Cloud) findDisk(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*compute.Disk, error) {
	d, err := c.readDisk(ctx, id, p)
	if saysNone(err) {
		return nil, nil //nolint:nilnil // "there is none" is an answer here, and every caller asks for it
	}
	return d, err
}

// diskList is the list of the folder's disks, or of those that a filter selects.
func (c *Cloud) diskList(p budget.Priority, filter string) api.Tokens[*compute.Disk] {
	return api.Tokens[*compute.Disk]{ID: (*compute.Disk).GetId, Read: func(ctx context.Context, token string) ([]*compute.Disk, string, error) {
		list, err := c.disks.List(ctx, &compute.ListDisksRequest{FolderId: c.folder, PageSize: perPage, PageToken: token, Filter: filter}, priority(p))
		return list.GetDisks(), list.GetNextPageToken(), wrap(err, "list the disks of folder %s", c.folder)
	}}
}

// disksNamed returns the disks with exactly this name, oldest first, without those that are being deleted.
func (c *Cloud) disksNamed(ctx context.Context, name string) ([]*compute.Disk, error) {
	same, err := c.diskList(budget.Read, nameIs(name)).All(ctx)
	if err != nil {
		return nil, fmt.Errorf("find disks named %s: %w", name, err)
	}
	same = slices.DeleteFunc(same, func(d *compute.Disk) bool { return d.GetName() != name || d.GetStatus() == compute.Disk_DELETING })
	slices.SortFunc(same, oldestFirst)
	return same, nil
}

// nameIs is the filter of a list for entries with a name.
func nameIs(name string) string { return fmt.Sprintf("name=%q", name) }

// disksFor selects the disks that this cluster created for a request.
func (c *Cloud) disksFor(request string, of []*compute.Disk) []*compute.Disk {
	return slices.DeleteFunc(slices.Clone(of), func(d *compute.Disk) bool { return !c.owner.MadeFor(request, d.GetLabels()) })
}

// ListVolumes returns one page of all disks of the folder, including boot disks and those of others, ordered by their ids. The attacher
// compares the list with the attachments.
func (c *Cloud) ListVolumes(ctx context.Context, page cloud.Page) (cloud.VolumeList, error) {
	part, next, err := c.diskList(budget.List, "").Listing("disks of "+c.folder).Part(ctx, page)
	if err != nil {
		return cloud.VolumeList{}, fmt.Errorf("list volumes: %w", err)
	}
	list := cloud.VolumeList{Next: next}
	for _, d := range part {
		list.Volumes = append(list.Volumes, c.volumeOf(d))
	}
	return list, nil
}

// snapshotList is the list of the folder's snapshots, or of those that a filter selects.
func (c *Cloud) snapshotList(p budget.Priority, filter string) api.Tokens[*compute.Snapshot] {
	return api.Tokens[*compute.Snapshot]{ID: (*compute.Snapshot).GetId, Read: func(ctx context.Context, token string) ([]*compute.Snapshot, string, error) {
		list, err := c.snapshots.List(ctx, &compute.ListSnapshotsRequest{FolderId: c.folder, PageSize: perPage, PageToken: token, Filter: filter}, priority(p))
		return list.GetSnapshots(), list.GetNextPageToken(), wrap(err, "list the snapshots of folder %s", c.folder)
	}}
}

// ListSnapshots returns one page of all snapshots, or of one disk's.
func (c *Cloud) ListSnapshots(ctx context.Context, of cloud.VolumeID, page cloud.Page) (cloud.SnapshotList, error) {
	if of != "" && !objectID(of) {
		return cloud.SnapshotList{}, nil
	}
	all := c.snapshotList(budget.List, "").Listing("snapshots of " + c.folder + " " + string(of))
	all.Keep = func(s *compute.Snapshot) bool { return of == "" || s.GetSourceDiskId() == string(of) }
	part, next, err := all.Part(ctx, page)
	if err != nil {
		return cloud.SnapshotList{}, fmt.Errorf("list snapshots: %w", err)
	}
	list := cloud.SnapshotList{Next: next}
	for _, s := range part {
		list.Snapshots = append(list.Snapshots, snapshotOf(s))
	}
	return list, nil
}

// Relocation is the move of a disk to another zone.
type Relocation struct {
	Disk cloud.VolumeID
	Zone string
	// Group is the placement group there, for a disk that is in one; "": it is in none.
	Group string
	// Step is called with what the call waits for from now on; nil: it is not called.
	Step func(what string)
}

// relocationTries is how many times an answer that was lost, or a read that failed, is followed by another look at the disk.
const relocationTries = 5

// Relocate moves a free disk to another zone, and returns when it is there; its id stays. It waits for what is under way with the disk
// first, such as a move that a call has begun whose program was killed. A disk that is in the zone is a success, so a repeat continues.
// If another call has moved the disk to a third zone meanwhile, the error is fault.Precondition, because that call has been told so.
//
// A request whose answer was lost is not repeated before the disk shows that it had no effect. A move that the cloud has begun and given
// up is an error.
func (c *Cloud) Relocate(ctx context.Context, r Relocation) error {
	name := fmt.Sprintf("relocate disk %.80s to %.80s", r.Disk, r.Zone)
	switch {
	case !objectID(r.Disk):
		return fmt.Errorf("%s: %w: no disk has such an id", name, fault.NotFound)
	case !zoneWord.MatchString(r.Zone):
		return fmt.Errorf("%s: %w: no zone has such a name", name, fault.InvalidArgument)
	case r.Group != "" && !objectID(r.Group):
		return fmt.Errorf("%s: %w: no placement group has the id %.80q", name, fault.InvalidArgument, r.Group)
	}
	if r.Step == nil {
		r.Step = func(string) {}
	}
	var seen relocated
	unsure := func(err error) bool {
		return slices.Contains([]fault.Kind{fault.Uncertain, fault.Unavailable, fault.Busy}, fault.Of(err)) && !failedWith(err)
	}
	return wait.Backoff{Tries: relocationTries, First: c.interval, Max: 4 * c.interval}.Retry(ctx, unsure, func() error {
		return wrap(c.relocate(ctx, name, r, &seen), "%s", name)
	})
}

// relocated is what the attempts of one call have seen.
type relocated struct {
	from string // the zone in which the first one has found the disk
	done bool   // the operation of the move has ended well
}

// relocate is one attempt.
func (c *Cloud) relocate(ctx context.Context, name string, r Relocation, seen *relocated) error {
	r.Step(fmt.Sprintf("the cloud to show disk %s", r.Disk))
	d, err := c.readDisk(ctx, r.Disk, budget.Read)
	if err != nil {
		return err
	}
	if seen.from == "" {
		seen.from = d.GetZoneId()
	}
	read := func(ctx context.Context) (*compute.Disk, error) { return c.findDisk(ctx, r.Disk, budget.Read) }
	r.Step(fmt.Sprintf("what is under way with disk %s to end", r.Disk))
	if d, err = ops.Settle(ctx, c.ops, diskKey(r.Disk), read); err != nil {
		return err
	}
	if seen.from == r.Zone { // it was shown before the end of a move, which may have failed
		seen.from = d.GetZoneId()
	}
	switch err := c.decideRelocation(r, d, seen.from); {
	case fault.Of(err) != fault.Busy:
		return err // it is there, or cannot be moved
	case seen.done:
		return fmt.Errorf("%w: the cloud has moved it, and shows it in %s", fault.Uncertain, d.GetZoneId())
	}
	if err := c.checkZone(ctx, r.Zone, d.GetTypeId()); err != nil {
		return err
	}
	body := &compute.RelocateDiskRequest{DiskId: string(r.Disk), DestinationZoneId: r.Zone}
	if r.Group != "" {
		body.DiskPlacementPolicy = &compute.DiskPlacementPolicy{PlacementGroupId: r.Group}
	}
	r.Step(fmt.Sprintf("disk %s to be moved from %s to %s; 100 GB take about 10 minutes", r.Disk, seen.from, r.Zone))
	_, err = ops.Run(ctx, c.ops, ops.Op[*compute.Disk]{
		Name: name, Kind: "relocate", Object: diskKey(r.Disk), Priority: budget.Write,
		Submit: func(ctx context.Context, w *ops.Write) (*compute.Disk, string, error) {
			operation, err := started(c.disks.Relocate(ctx, body, by(w)))
			return nil, operation, err
		},
		State: read,
		Decide: func(d *compute.Disk, settled bool, refusal error) error {
			err := c.decideRelocation(r, d, seen.from)
			switch {
			case !settled:
				err = fault.Busy
			case fault.Of(err) == fault.Busy && fault.Of(refusal) == fault.InvalidArgument: // a repeat would ask for the same
				err = fault.Precondition
			case err == nil:
				return nil
			}
			return fmt.Errorf("%w: %w", err, refusal)
		},
	})
	if err != nil || seen.done {
		return err
	}
	seen.done = true
	return c.relocate(ctx, name, r, seen) // the zone is the one that the cloud shows after the move
}

// decideRelocation decides about a disk of which nothing is under way: nil if it is in the zone, fault.Busy if it should be moved now, and
// otherwise why it is not moved.
func (c *Cloud) decideRelocation(r Relocation, d *compute.Disk, from string) error {
	grouped := d.GetDiskPlacementPolicy().GetPlacementGroupId() != ""
	switch {
	case d == nil:
		return fmt.Errorf("there is no such disk: %w", fault.NotFound)
	case d.GetStatus() != compute.Disk_READY:
		return notReady(d)
	case d.GetZoneId() == r.Zone:
		return nil
	case d.GetZoneId() != from:
		return fmt.Errorf("it was in %s, and another call has moved it to %s meanwhile: %w", from, d.GetZoneId(), fault.Precondition)
	case d.GetFolderId() != c.folder:
		return fmt.Errorf("it is in the folder %s, and not in %s: %w", d.GetFolderId(), c.folder, fault.Precondition)
	case len(d.GetInstanceIds()) > 0:
		return fmt.Errorf("it is attached to instance %s; scale the workload to zero, and wait until its VolumeAttachment is gone: %w", d.GetInstanceIds()[0], fault.VolumeInUse)
	case grouped && r.Group == "":
		return fmt.Errorf("it is in the placement group %s, and needs one of %s: %w", d.GetDiskPlacementPolicy().GetPlacementGroupId(), r.Zone, fault.Precondition)
	case !grouped && r.Group != "":
		return fmt.Errorf("it is in no placement group, and is put into none: %w", fault.Precondition)
	}
	return fault.Busy
}
