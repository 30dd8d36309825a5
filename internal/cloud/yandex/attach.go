package yandex

import (
	"context"
	"fmt"
	"slices"

	compute "github.com/yandex-cloud/go-genproto/yandex/cloud/compute/v1"
	"github.com/yandex-cloud/go-genproto/yandex/cloud/operation"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Attach makes the disk one of the machine's.
func (c *Cloud) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	machine := string(node)
	switch {
	case !objectID(id):
		return cloud.Device{}, fmt.Errorf("attach volume %.80q: %w: no disk has such an id", id, fault.NotFound)
	case !objectID(machine):
		return cloud.Device{}, fmt.Errorf("attach disk %s to %.80q: %w: no machine has such an id", id, node, fault.NotFound)
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Attach))
	defer cancel()
	doing := fmt.Sprintf("attach disk %s to the machine %s", id, machine)
	f, err := c.know(ctx, id)
	if err != nil {
		return cloud.Device{}, fmt.Errorf("%s: %w", doing, err)
	}
	c.growing.Before(ctx, id, f.wish)
	device := c.deviceName(id)
	t := &turn{c: c, doing: doing, machine: machine, shows: func(s sight) bool { return attachedTo(s.disk, machine) }}
	t.send = func(ctx context.Context) (*change, error) {
		since := c.known.unsettle(id, machine)
		op, err := c.begin(ctx, diskKey(id), doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.machines.AttachDisk(ctx, &compute.AttachInstanceDiskRequest{
				InstanceId: machine,
				AttachedDiskSpec: &compute.AttachedDiskSpec{
					Mode: compute.AttachedDiskSpec_READ_WRITE, DeviceName: c.deviceName(id),
					Disk: &compute.AttachedDiskSpec_DiskId{DiskId: string(id)},
				},
			})
		})
		return changeOf(op, id, kindAttach).on(machine, since), err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		joined, d, err := c.after(ctx, id, machine)
		if err != nil {
			return err
		}
		if d != nil && attachedTo(d, machine) {
			device, err = c.deviceOn(ctx, id, machine)
			return err
		}
		return c.decideAttach(ctx, t, joined, d, refusal)
	}
	seen, err := t.do(ctx)
	if err != nil {
		return cloud.Device{}, err
	}
	c.known.attached(id, machine, seen.at)
	return deviceOf(device), nil
}

// decideAttach says what a refused attach means, or one that the cloud gave up, of a disk that is not attached
// to the machine.
func (c *Cloud) decideAttach(ctx context.Context, t *turn, joined bool, d *compute.Disk, refusal error) error {
	switch {
	case d == nil:
		return fmt.Errorf("%w: there is no such disk: %w", fault.NotFound, refusal)
	case len(d.GetInstanceIds()) > 0:
		return fmt.Errorf("it is attached to the machine %s; it can be attached here when it is detached there: %w: %w",
			d.GetInstanceIds()[0], fault.Precondition, refusal)
	case d.GetStatus() == compute.Disk_CREATING:
		return fmt.Errorf("the disk is being made: %w: %w", fault.Unavailable, refusal)
	case d.GetStatus() != compute.Disk_READY:
		return fmt.Errorf("%w: %w: %w", fault.Precondition, inError(d), refusal)
	}
	there, err := c.machine(ctx, t.machine)
	switch {
	case err != nil:
		return err
	case there == nil:
		return fmt.Errorf("%w: there is no such machine: %w", fault.NotFound, refusal)
	case there.GetZoneId() != d.GetZoneId():
		return fmt.Errorf("the disk is in %s and the machine in %s; a disk is attached in its own zone only: %w: %w",
			d.GetZoneId(), there.GetZoneId(), fault.Precondition, refusal)
	case fault.Of(refusal) == fault.Exhausted:
		return fmt.Errorf("the machine has no room for one more disk, it has %d beside its boot disk; does its node report too large a limit (--max-volumes)?: %w: %w",
			len(there.GetSecondaryDisks()), fault.Exhausted, refusal)
	}
	return t.machineSays(there, joined, refusal)
}

// machineSays tells a machine that will take the change later from one that will not.
func (t *turn) machineSays(there *compute.Instance, joined bool, refusal error) error {
	switch there.GetStatus() {
	case compute.Instance_PROVISIONING, compute.Instance_STARTING, compute.Instance_RESTARTING,
		compute.Instance_STOPPING, compute.Instance_UPDATING:
		return fmt.Errorf("the machine is %s: %w: %w", there.GetStatus(), fault.Busy, refusal)
	case compute.Instance_ERROR, compute.Instance_CRASHED, compute.Instance_DELETING:
		return fmt.Errorf("the machine is %s: %w: %w", there.GetStatus(), fault.Unavailable, refusal)
	}
	return t.again(joined, refusal)
}

// deviceOn returns under which name the disk is attached to the machine. The vendor's driver has its own.
func (c *Cloud) deviceOn(ctx context.Context, id cloud.VolumeID, machine string) (string, error) {
	there, err := c.machine(ctx, machine)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(there.GetSecondaryDisks(), func(d *compute.AttachedDisk) bool { return d.GetDiskId() == string(id) })
	switch {
	case at < 0 && there.GetBootDisk().GetDiskId() == string(id):
		return "", fmt.Errorf("it is the machine's boot disk: %w", fault.Precondition)
	case at < 0:
		return "", fmt.Errorf("the machine does not show it among its disks yet: %w", fault.Unavailable)
	}
	on := there.GetSecondaryDisks()[at]
	if on.GetMode() == compute.AttachedDisk_READ_ONLY {
		return "", fmt.Errorf("it is attached there for reading only; somebody else has done that and has to detach it: %w", fault.Precondition)
	}
	if on.GetDeviceName() == "" {
		return c.deviceName(id), nil
	}
	return on.GetDeviceName(), nil
}

// machine reads a machine; nil if there is none.
func (c *Cloud) machine(ctx context.Context, id string) (*compute.Instance, error) {
	there, err := c.machines.Get(budget.WithPriority(ctx, budget.Read), &compute.GetInstanceRequest{InstanceId: id})
	if a := answerOf(err); a != nil && a.code == codes.NotFound {
		return nil, nil //nolint:nilnil // "there is none" is an answer here
	}
	return there, readError("look at the machine "+id, err)
}

// Detach takes the disk off the machine, or off whatever machine.
func (c *Cloud) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	if !objectID(id) {
		return nil // no disk, so it is free
	}
	ctx, cancel := c.bounded(budget.WithPriority(ctx, budget.Detach))
	defer cancel()
	if node == "" {
		return c.detachAll(ctx, id)
	}
	if !objectID(node) {
		return nil // a disk is never one of what is no machine
	}
	return c.detach(ctx, id, string(node))
}

// detachAll takes the disk off whatever it is attached to, or is about to be.
func (c *Cloud) detachAll(ctx context.Context, id cloud.VolumeID) error {
	for {
		_, d, err := c.after(ctx, id, "")
		switch {
		case err != nil:
			return fmt.Errorf("detach disk %s: %w", id, err)
		case d == nil:
			return nil
		case len(d.GetInstanceIds()) == 0:
			c.growing.Soon(id)
			return nil
		}
		if err := c.detach(ctx, id, d.GetInstanceIds()[0]); err != nil {
			return err
		}
	}
}

func (c *Cloud) detach(ctx context.Context, id cloud.VolumeID, machine string) error {
	t := &turn{c: c, doing: fmt.Sprintf("detach disk %s from the machine %s", id, machine), machine: machine}
	t.shows = func(s sight) bool { return s.gone || s.disk != nil && !attachedTo(s.disk, machine) }
	t.send = func(ctx context.Context) (*change, error) {
		since := c.known.unsettle(id, machine)
		op, err := c.begin(ctx, diskKey(id), t.doing, func(ctx context.Context) (*operation.Operation, error) {
			return c.machines.DetachDisk(ctx, &compute.DetachInstanceDiskRequest{
				InstanceId: machine, Disk: &compute.DetachInstanceDiskRequest_DiskId{DiskId: string(id)},
			})
		})
		return changeOf(op, id, kindDetach).on(machine, since), err
	}
	t.decide = func(ctx context.Context, refusal error) error {
		joined, d, err := c.after(ctx, id, machine)
		switch {
		case err != nil:
			return err
		case d == nil || !attachedTo(d, machine):
			return nil // read after everything under way had ended: it is free of this machine
		}
		there, err := c.machine(ctx, machine)
		switch {
		case err != nil:
			return err
		case there == nil: // the machine has gone and the disk's record lags behind it (failure A11)
			return fmt.Errorf("the disk still shows as attached to it; this ends by itself when the machine is gone: %w: %w", fault.Unavailable, refusal)
		case there.GetBootDisk().GetDiskId() == string(id):
			return fmt.Errorf("it is the machine's boot disk: %w: %w", fault.Precondition, refusal)
		}
		return t.machineSays(there, joined, refusal)
	}
	seen, err := t.do(ctx)
	if err != nil {
		return err
	}
	c.known.attached(id, "", seen.at)
	if seen.gone {
		return nil
	}
	if _, wished := growthOf(seen.disk.GetLabels()); wished || seen.disk == nil { // else the look at its end shows that there is none
		c.growing.Soon(id)
	}
	return nil
}
