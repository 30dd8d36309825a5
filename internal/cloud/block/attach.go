package block

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// place is the state of a volume and of the machine of an attach or a detach.
type place struct {
	vol     *Volume // nil: there is none
	machine *Machine
	// looked: the machine was read.
	looked bool
	device cloud.Device // by the answer to an attach
}

// placeOf reads a volume, and the machine if the decision depends on it.
func (b *Verbs) placeOf(ctx context.Context, id cloud.VolumeID, machine cloud.NodeID, p budget.Priority, look func(v *Volume) bool) (at place, err error) {
	at.vol, err = b.api.Volume(ctx, id, p)
	if err == nil && at.vol != nil && (b.traits.MachineHasDisks || look(at.vol)) {
		at.looked = true
		at.machine, err = b.api.Machine(ctx, machine)
	}
	return at, err
}

// Attach attaches a volume to a machine, and returns how the machine identifies the disk.
func (b *Verbs) Attach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) (cloud.Device, error) {
	switch {
	case !b.traits.VolumeID(id):
		return cloud.Device{}, b.noSuchID("attach ", id)
	case !b.traits.MachineID(node):
		return cloud.Device{}, fmt.Errorf("attach %s to %.80q: %w: no %s has such an id", b.VolumeKey(id), node, fault.NotFound, b.traits.MachineWord)
	}
	at, err := ops.Run(ctx, b.ops, ops.Op[place]{
		Name: fmt.Sprintf("attach %s to %s", b.VolumeKey(id), b.machineKey(node)), Kind: "attach",
		Object: b.VolumeKey(id), Machine: b.machineKey(node), Related: b.related(node), Priority: budget.Attach,
		Submit: func(ctx context.Context, w *ops.Write) (place, string, error) {
			device, operation, err := b.api.Attach(ctx, w, id, node)
			return place{device: device}, operation, err
		},
		State: func(ctx context.Context) (place, error) {
			return b.placeOf(ctx, id, node, budget.Read, func(v *Volume) bool { return len(v.AttachedTo) == 0 })
		},
		Decide: func(at place, settled bool, refusal error) error { return b.decideAttach(at, node, settled, refusal) },
	})
	if err != nil {
		return cloud.Device{}, err
	}
	if disk, _ := at.machine.disk(id); disk.Device != (cloud.Device{}) {
		return disk.Device, nil
	}
	switch {
	case at.vol != nil: // it was attached before this request
		return at.vol.Device, nil
	case at.device != (cloud.Device{}):
		return at.device, nil
	}
	v, err := b.Get(ctx, id)
	if err != nil {
		return cloud.Device{}, fmt.Errorf("attach %s to %s: it is attached, and how the %s identifies it is unknown: %w", b.VolumeKey(id), b.machineKey(node), b.traits.MachineWord, err)
	}
	return v.Device, nil
}

// disk returns a volume in the machine's record, if it is there.
func (m *Machine) disk(id cloud.VolumeID) (disk Disk, shown bool) {
	if m != nil {
		disk, shown = m.Disks[id]
	}
	return disk, shown
}

// decideAttach decides about a refused attach; see ops.Op.Decide.
func (b *Verbs) decideAttach(at place, node cloud.NodeID, settled bool, refusal error) error {
	v, m, word := at.vol, at.machine, b.traits.MachineWord
	switch {
	case v == nil:
		return fmt.Errorf("%w: there is no such %s: %w", fault.NotFound, b.traits.VolumeWord, refusal)
	case fault.ReasonOf(v.Hindered) == fault.VolumeDamaged: // wherever it is
		return fmt.Errorf("%w: %w", v.Hindered, refusal)
	case !settled || v.busy():
		return fmt.Errorf("%w: %w", fault.Busy, refusal) // an attachment that is being undone is none (failure A1)
	case v.on(node):
		return b.decideAttached(at, refusal)
	case len(v.AttachedTo) > 0:
		return fmt.Errorf("it is attached to %s; it can be attached here when it is detached there: %w: %w",
			b.machineKey(v.AttachedTo[0]), fault.AttachedElsewhere, refusal)
	case v.Hindered != nil:
		return fmt.Errorf("%w: %w", v.Hindered, refusal)
	case m == nil:
		return fmt.Errorf("%w: there is no such %s: %w", fault.NotFound, word, refusal)
	case m.Zone != "" && m.Zone != v.Zone:
		return fmt.Errorf("the %s is in %s and the %s in %s: %w: %w", b.traits.VolumeWord, v.Zone, word, m.Zone, fault.WrongZone, refusal)
	case m.Slots > 0 && m.Used >= m.Slots || fault.Of(refusal) == fault.Exhausted:
		return fmt.Errorf("the %s has no free slot, %d are taken; does its node report too large a limit (--max-volumes)?: %w: %w",
			word, m.Used, fault.NoSlot, refusal)
	case m.Hindered != nil:
		return fmt.Errorf("%w: %w", m.Hindered, refusal)
	}
	// The state has changed since the refusal, or its reason is something that the API does not show.
	return fmt.Errorf("the %s is free, and nothing that the cloud shows of the %s is in the way now: %w: %w", b.traits.VolumeWord, word, fault.Busy, refusal)
}

// decideAttached returns an error for a volume that is attached to the right machine and cannot be used there.
func (b *Verbs) decideAttached(at place, refusal error) error {
	switch disk, shown := at.machine.disk(at.vol.ID); {
	case at.vol.Attaching:
		return fmt.Errorf("it is attached there and shows no device yet: %w: %w", fault.Busy, refusal)
	case !b.traits.MachineHasDisks:
		return nil
	case disk.Boot:
		return b.bootDisk(refusal)
	case !shown:
		return fmt.Errorf("the %s does not show it among its disks yet: %w: %w", b.traits.MachineWord, fault.Unavailable, refusal)
	case disk.ReadOnly:
		return fmt.Errorf("it is attached there for reading only; it was attached by hand and has to be detached: %w: %w", fault.Precondition, refusal)
	}
	return nil
}

func (b *Verbs) bootDisk(refusal error) error {
	return fmt.Errorf("it is the %s's boot disk: %w: %w", b.traits.MachineWord, fault.Precondition, refusal)
}

// Detach detaches a volume from a machine, or with "" from any.
func (b *Verbs) Detach(ctx context.Context, id cloud.VolumeID, node cloud.NodeID) error {
	switch {
	case !b.traits.VolumeID(id):
		return nil // no volume, so it is free
	case node == "":
		return b.detachAll(ctx, id)
	case !b.traits.MachineID(node):
		return nil // a volume is never a disk of what is no machine
	}
	return b.detach(ctx, id, node)
}

// detachAll detaches a volume from all machines to which it is attached or about to be.
func (b *Verbs) detachAll(ctx context.Context, id cloud.VolumeID) error {
	ctx, cancel := b.ops.Bounded(ctx)
	defer cancel()
	read := b.settled
	if b.traits.ShowsChanges {
		read = b.api.Volume
	}
	for {
		v, err := read(ctx, id, budget.Detach)
		switch {
		case err != nil:
			return fmt.Errorf("detach %s: %w", b.VolumeKey(id), err)
		case v == nil || len(v.AttachedTo) == 0:
			return nil
		}
		if err := b.detach(ctx, id, v.AttachedTo[0]); err != nil {
			return err
		}
	}
}

func (b *Verbs) detach(ctx context.Context, id cloud.VolumeID, from cloud.NodeID) error {
	_, err := ops.Run(ctx, b.ops, ops.Op[place]{
		Name: fmt.Sprintf("detach %s from %s", b.VolumeKey(id), b.machineKey(from)), Kind: "detach",
		Object: b.VolumeKey(id), Machine: b.machineKey(from), Related: b.related(from), Priority: budget.Detach,
		Lease: unless(b.traits.DetachNamesMachine), Settle: !b.traits.ShowsChanges,
		Submit: func(ctx context.Context, w *ops.Write) (place, string, error) {
			operation, err := b.api.Detach(ctx, w, id, from)
			return place{}, operation, err
		},
		State: func(ctx context.Context) (place, error) {
			return b.placeOf(ctx, id, from, budget.Detach, func(*Volume) bool { return false })
		},
		Decide: func(at place, settled bool, refusal error) error { return b.decideDetach(at, from, settled, refusal) },
	})
	return err
}

// decideDetach decides about a detach that was refused, or with a Lease not sent yet; see ops.Op.Decide.
func (b *Verbs) decideDetach(at place, from cloud.NodeID, settled bool, refusal error) error {
	switch {
	case at.vol == nil:
		return nil
	case !at.vol.on(from) && (settled || b.traits.ShowsChanges):
		return nil // and no attach is under way that could still land
	case refusal == nil:
		return fault.Busy
	case !settled && b.traits.MachineHasDisks:
		return fmt.Errorf("%w: %w", fault.Busy, refusal)
	case at.vol.on(from) && (!b.traits.MachineHasDisks && fault.Of(refusal) == fault.NotFound || at.looked && at.machine == nil):
		// The machine is gone, and the volume's record is stale (failure A11).
		return fmt.Errorf("the %s still shows as attached to it; this ends by itself when the %s is gone: %w: %w",
			b.traits.VolumeWord, b.traits.MachineWord, fault.Unavailable, refusal)
	case at.machine != nil && at.machine.Disks[at.vol.ID].Boot:
		return b.bootDisk(refusal)
	case at.machine != nil && at.machine.Hindered != nil:
		return fmt.Errorf("%w: %w", at.machine.Hindered, refusal)
	}
	return fmt.Errorf("%w: %w", fault.Busy, refusal)
}
