package yandex

import (
	"context"
	"fmt"
	"slices"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Attach makes the disk one of the instance's.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	onto := string(node)
	switch {
	case !objectID(id):
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no disk has such an id", id, fault.NotFound)
	case !objectID(onto):
		return cloud.Device{}, fmt.Errorf("attach disk %s to %.80q: %w: no instance has such an id", id, node, fault.NotFound)
	}
	at, err := ops.Run(ctx, c.ops, ops.Op[placement]{
		Name: fmt.Sprintf("attach disk %s to instance %s", id, onto), Kind: "attach",
		Object: diskKey(id), Machine: instanceKey(onto), Involved: instanceKey(onto), Priority: budget.Attach,
		Submit: func(ctx context.Context, w *ops.Write) (placement, string, error) {
			op, err := started(c.instances.AttachDisk(ctx, &compute.AttachInstanceDiskRequest{
				InstanceId: onto,
				AttachedDiskSpec: &compute.AttachedDiskSpec{
					Mode: compute.AttachedDiskSpec_READ_WRITE, DeviceName: c.deviceName(id),
					Disk: &compute.AttachedDiskSpec_DiskId{DiskId: string(id)},
				},
			}, by(w)))
			return placement{}, op, err
		},
		State: func(ctx context.Context) (placement, error) { return c.placement(ctx, id, onto) },
		Decide: func(at placement, settled bool, refusal error) error {
			return decideAttach(at, onto, settled, refusal)
		},
	})
	if err != nil {
		return cloud.Device{}, attachError(err)
	}
	device := deviceOf(c.deviceName(id))
	if there := at.attached(); there.GetDeviceName() != "" { // the vendor's driver has names of its own
		device = deviceOf(there.GetDeviceName())
	}
	device.ManyDisks = c.takesManyDisks(ctx, onto)
	return device, nil
}

// takesManyDisks reports whether an instance has hardware of the generation 1.2 or 2. That is fixed when the instance is
// made, so it is read once. A read that fails is left to the next attach: the disk is attached.
func (c *Cloud) takesManyDisks(ctx context.Context, id string) bool {
	if c.manyDisks.has(id) || c.fewDisks.has(id) {
		return c.manyDisks.has(id)
	}
	instance, err := c.findInstance(ctx, id)
	if err != nil || instance == nil {
		return false
	}
	of := instance.GetHardwareGeneration()
	many := of.GetGeneration2Features() != nil || of.GetLegacyFeatures().GetPciTopology() == compute.PCITopology_PCI_TOPOLOGY_V2
	if many {
		c.manyDisks.add(id)
	} else {
		c.fewDisks.add(id)
	}
	return many
}

// placement is where a disk is, and the instance that it is wanted at or off.
type placement struct {
	disk     *compute.Disk     // nil: there is none
	instance *compute.Instance // nil: there is none
}

func (c *Cloud) placement(ctx context.Context, id cloud.VolumeID, instance string) (at placement, err error) {
	if at.disk, err = c.findDisk(ctx, id); err == nil && at.disk != nil {
		at.instance, err = c.findInstance(ctx, instance)
	}
	return at, err
}

// attached is the disk as the instance shows it, or nil.
func (at placement) attached() *compute.AttachedDisk {
	all := at.instance.GetSecondaryDisks()
	i := slices.IndexFunc(all, func(d *compute.AttachedDisk) bool { return d.GetDiskId() == at.disk.GetId() })
	if i < 0 {
		return nil
	}
	return all[i]
}

func (at placement) isBootDisk() bool {
	return at.instance.GetBootDisk().GetDiskId() == at.disk.GetId()
}

// decideAttach says what a refused attach means.
func decideAttach(at placement, onto string, settled bool, refusal error) error {
	switch {
	case at.disk == nil:
		return fmt.Errorf("%w: there is no such disk: %w", fault.NotFound, refusal)
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // an attachment that is being undone is none (failure A1)
	case attachedTo(at.disk, onto):
		return decideAttached(at, refusal)
	case len(at.disk.GetInstanceIds()) > 0:
		return fmt.Errorf("it is attached to instance %s; it can be attached here when it is detached there: %w: %w",
			at.disk.GetInstanceIds()[0], fault.AttachedElsewhere, refusal)
	case at.disk.GetStatus() != compute.Disk_READY:
		return fmt.Errorf("%w: %w", notReady(at.disk), refusal)
	case at.instance == nil:
		return fmt.Errorf("%w: there is no such instance: %w", fault.NotFound, refusal)
	case at.instance.GetZoneId() != at.disk.GetZoneId():
		return fmt.Errorf("the disk is in %s and the instance in %s; a disk is attached in its own zone only: %w: %w",
			at.disk.GetZoneId(), at.instance.GetZoneId(), fault.WrongZone, refusal)
	case fault.Of(refusal) == fault.Exhausted:
		return fmt.Errorf("the instance has no free slot, %d disks are attached to it besides its boot disk; does its node report too large a limit (--max-volumes)?: %w: %w",
			len(at.instance.GetSecondaryDisks()), fault.NoSlot, refusal)
	}
	return decideInstance(at.instance, refusal)
}

// decideAttached says whether a disk that is attached where it is wanted can be used there.
func decideAttached(at placement, refusal error) error {
	switch on := at.attached(); {
	case at.isBootDisk():
		return fmt.Errorf("it is the instance's boot disk: %w: %w", fault.Precondition, refusal)
	case on == nil:
		return fmt.Errorf("the instance does not show it among its disks yet: %w: %w", fault.Unavailable, refusal)
	case on.GetMode() == compute.AttachedDisk_READ_ONLY:
		return fmt.Errorf("it is attached there for reading only; it was attached by hand and has to be detached: %w: %w", fault.Precondition, refusal)
	}
	return nil
}

// decideInstance tells an instance that takes changes from one that does not.
func decideInstance(instance *compute.Instance, refusal error) error {
	switch status := instance.GetStatus(); status {
	case compute.Instance_RUNNING, compute.Instance_STOPPED, compute.Instance_STATUS_UNSPECIFIED:
		// The refusal was about a state that has changed since, or about something that the API does not show.
		return fmt.Errorf("the instance is %s: %w: %w", status, fault.Busy, refusal)
	default:
		return fmt.Errorf("the instance is %s: %w: %w", status, fault.Unavailable, refusal)
	}
}

// attachError keeps fault.Exhausted for slots, which send the pod to another node: a quota of the folder is the
// same on all of them.
func attachError(err error) error {
	a := answerOf(err)
	if fault.Of(err) == fault.Exhausted && (a == nil || !a.says(textSlots)) {
		return fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return err
}

// Detach takes the disk off the instance, or off whatever instance.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if !objectID(id) {
		return nil // no disk, so it is free
	}
	if node == "" {
		return c.detachAll(ctx, id)
	}
	if !objectID(node) {
		return nil // a disk is never one of what is no instance
	}
	return c.detach(ctx, id, string(node))
}

// detachAll takes the disk off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id cloud.VolumeID) error {
	ctx, cancel := c.ops.Bounded(ctx)
	defer cancel()
	for {
		d, err := ops.Settle(ctx, c.ops, diskKey(id), func(ctx context.Context) (*compute.Disk, error) { return c.findDisk(ctx, id) })
		if err != nil || d == nil || len(d.GetInstanceIds()) == 0 {
			return about(err, "detach disk %s", id)
		}
		if err := c.detach(ctx, id, d.GetInstanceIds()[0]); err != nil {
			return err
		}
	}
}

func (c *Cloud) detach(ctx context.Context, id cloud.VolumeID, from string) error {
	_, err := ops.Run(ctx, c.ops, ops.Op[placement]{
		Name: fmt.Sprintf("detach disk %s from instance %s", id, from), Kind: "detach",
		Object: diskKey(id), Machine: instanceKey(from), Involved: instanceKey(from), Priority: budget.Detach,
		Submit: func(ctx context.Context, w *ops.Write) (placement, string, error) {
			op, err := started(c.instances.DetachDisk(ctx, &compute.DetachInstanceDiskRequest{
				InstanceId: from, Disk: &compute.DetachInstanceDiskRequest_DiskId{DiskId: string(id)},
			}, by(w)))
			return placement{}, op, err
		},
		State: func(ctx context.Context) (placement, error) { return c.placement(ctx, id, from) },
		Decide: func(at placement, settled bool, refusal error) error {
			return decideDetach(at, from, settled, refusal)
		},
	})
	return err
}

// decideDetach says what a refused detach means.
func decideDetach(at placement, from string, settled bool, refusal error) error {
	switch {
	case at.disk == nil:
		return nil
	case !settled:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case !attachedTo(at.disk, from):
		return nil // and no attach is under way that could still land
	case at.instance == nil:
		// The instance has gone and the disk's record lags behind it (failure A11).
		return fmt.Errorf("the disk still shows as attached to it; this ends by itself when the instance is gone: %w: %w", fault.Unavailable, refusal)
	case at.isBootDisk():
		return fmt.Errorf("it is the instance's boot disk: %w: %w", fault.Precondition, refusal)
	}
	return decideInstance(at.instance, refusal)
}

// findInstance reads an instance; nil: there is none.
func (c *Cloud) findInstance(ctx context.Context, id string) (*compute.Instance, error) {
	instance, err := c.instances.Get(ctx, &compute.GetInstanceRequest{InstanceId: id})
	switch {
	case saysNone(err):
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	case err != nil:
		return nil, about(err, "read instance %s", id)
	case instance.GetId() != id:
		return nil, fmt.Errorf("read instance %s: %w: the answer is about something else", id, fault.Unavailable)
	}
	return instance, nil
}
