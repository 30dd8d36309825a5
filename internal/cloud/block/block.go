// Package block implements attach, detach, growth, deletion and find once for all clouds that attach volumes to machines: which changes
// are safe does not depend on the cloud. A backend describes its cloud (Traits) and sends the requests (API). This package decides when
// they are sent and what a refusal means, and package ops runs the changes.
package block

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/ops"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Lease is how long after a read a request may be sent that the cloud does not check. To move the volume meanwhile, another controller
// needs a detach and an attach, which take seconds each.
const Lease = 2 * time.Second

// unless returns Lease, or 0 if the cloud checks the request.
func unless(checked bool) time.Duration {
	if checked {
		return 0
	}
	return Lease
}

// Volume is what a read shows of a volume.
type Volume struct {
	cloud.Volume

	// Hindered is why the volume cannot be changed now: fault.Busy if it shows a running operation, which may take back the size too;
	// another kind for an error state, for example; nil: it can.
	Hindered error
	// Attaching: its attach shows no device yet. A machine that is off may show none for hours, which hinders nothing but its use there.
	Attaching bool
	// Fit rounds a size up to one that the volume can have; nil: sizes are multiples of a GiB.
	Fit func(size cloud.Bytes) (cloud.Bytes, error)
	// Version changes with every change of the volume that the cloud shows.
	Version string
}

// busy reports whether the volume shows a running operation.
func (v *Volume) busy() bool { return fault.Of(v.Hindered) == fault.Busy }

// on reports whether the volume is attached to a machine, or about to be.
func (v *Volume) on(machine cloud.NodeID) bool {
	for _, id := range v.AttachedTo {
		if id == machine {
			return true
		}
	}
	return false
}

// Machine is what a read shows of a machine that may explain a refused attach or detach.
type Machine struct {
	Zone string
	// Used is how many of Slots volumes are attached. Slots is 0 if only a refusal shows the attach limit.
	Used, Slots int
	// Hindered is why the machine accepts no change now; nil: it does.
	Hindered error
	// Disks are the attached volumes in the machine's own record (Traits.MachineHasDisks).
	Disks map[cloud.VolumeID]Disk
}

// Disk is an attached volume in a machine's record.
type Disk struct {
	// Device is how the machine identifies the disk, if that is not the volume's Device.
	Device         cloud.Device
	Boot, ReadOnly bool
}

// API has the requests of a cloud. Each method but Find sends one request. A change returns the id of the operation that it begins, or
// "" if it is complete with the answer.
type API interface {
	// Volume reads a volume, and Machine a machine; nil: it does not exist or is being deleted.
	Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*Volume, error)
	Machine(ctx context.Context, id cloud.NodeID) (*Machine, error)
	// Find finds the volume of a request by the cloud's name for it; see the function Find.
	Find(ctx context.Context, request string) (*Volume, error)

	// Attach also returns how the machine identifies the disk; the zero Device: the answer does not say it, and the volume is read. Its error
	// is fault.Exhausted only at the machine's attach limit.
	Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (device cloud.Device, operation string, err error)
	Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (operation string, err error)
	Resize(ctx context.Context, w *ops.Write, v *Volume, size cloud.Bytes) (operation string, err error)
	Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (operation string, err error)
}

// Traits are the facts of a cloud.
type Traits struct {
	// VolumeWord and MachineWord are the cloud's words, such as "disk" and "instance".
	VolumeWord, MachineWord string
	// VolumeID and MachineID report whether this can be an id of the cloud. Others are never sent.
	VolumeID   func(cloud.VolumeID) bool
	MachineID  func(cloud.NodeID) bool
	SnapshotID func(cloud.SnapshotID) bool // nil: there are no snapshots
	Zone       func(string) bool
	// Largest is the maximum size of a volume.
	Largest cloud.Bytes

	// DetachNamesMachine: a detach from a machine to which the volume is not attached is refused. KeepsAttached: so is the deletion of an
	// attached volume. Otherwise that request is sent within Lease after a read or not at all.
	DetachNamesMachine, KeepsAttached bool
	// ShowsChanges: a read shows a running attach or growth from its start, as AttachedTo and Hindered. That saves the requests for the
	// running operations before a read that decides; false is correct in every cloud.
	ShowsChanges bool
	// MachineHasDisks: a machine's record shows its volumes, and its operations include theirs.
	MachineHasDisks bool
	// GrowsOnMachine: the growth of an attached volume counts as a change of its machine, which has one at a time.
	GrowsOnMachine bool
	// ConfirmsLate: a machine sees a growth only after the next attach of the volume.
	ConfirmsLate bool
	// NoGrowthAttached reports whether a refusal of a growth is because the volume is attached; nil: it never is.
	NoGrowthAttached func(refusal error) bool
	// Locks returns what else prevents the deletion of a volume, for messages; nil: nothing does.
	Locks func(ctx context.Context, id cloud.VolumeID) string
}

// Verbs are the methods of cloud.Cloud that change a volume.
type Verbs struct {
	traits Traits
	api    API
	ops    *ops.Runner
	// reads combines concurrent reads.
	reads *ops.Reads[cloud.VolumeID, *Volume]
}

// New returns the Verbs of a cloud. page reads all volumes with one request, or returns nil if one request cannot show all; it may be
// nil.
func New(traits Traits, api API, runner *ops.Runner, page func(context.Context) (map[cloud.VolumeID]*Volume, error)) *Verbs {
	b := &Verbs{traits: traits, api: api, ops: runner}
	b.reads = ops.NewReads(runner, func(ctx context.Context, id cloud.VolumeID) (*Volume, error) { return api.Volume(ctx, id, budget.Read) }, page)
	return b
}

// Get reads a volume, together with concurrent reads of others. fault.NotFound if there is none.
func (b *Verbs) Get(ctx context.Context, id cloud.VolumeID) (*Volume, error) {
	if !b.traits.VolumeID(id) {
		return nil, b.noSuchID("", id)
	}
	v, err := b.reads.Get(ctx, id)
	if err == nil && v == nil {
		err = fmt.Errorf("there is no %s %s: %w", b.traits.VolumeWord, id, fault.NotFound)
	}
	return v, err
}

// GetVolume returns the current state of a volume.
func (b *Verbs) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	v, err := b.Get(ctx, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	return v.Volume, nil
}

// FindVolume returns the volume of a request when none of its operations is running. Until then its size may be that of a growth that
// fails (failure C5).
func (b *Verbs) FindVolume(ctx context.Context, name string) (cloud.Volume, error) {
	ctx, cancel := b.ops.Bounded(ctx)
	defer cancel()
	found, err := b.api.Find(ctx, name)
	if err != nil {
		return cloud.Volume{}, err
	}
	v, doing := found, fmt.Sprintf("find volume %q: %s was found", name, b.VolumeKey(found.ID))
	if v.busy() || !b.traits.ShowsChanges {
		v, err = b.settled(ctx, v.ID, budget.Read)
	} else { // it may have been found in a list that is older than its deletion
		v, err = b.api.Volume(ctx, v.ID, budget.Read)
	}
	switch {
	case err != nil:
		return cloud.Volume{}, fmt.Errorf("%s, and its state is unknown: %w: %w", doing, fault.Unavailable, err)
	case v == nil:
		return cloud.Volume{}, fmt.Errorf("%s, and is gone: %w", doing, fault.Unavailable)
	case v.Hindered != nil:
		return cloud.Volume{}, fmt.Errorf("%s: %w", doing, v.Hindered)
	}
	return v.Volume, nil
}

// noSuchID is the error for an id that the cloud cannot have.
func (b *Verbs) noSuchID(doing string, id cloud.VolumeID) error {
	return fmt.Errorf("%s%s %.80q: %w: no %s has such an id", doing, b.traits.VolumeWord, id, fault.NotFound, b.traits.VolumeWord)
}

// VolumeKey returns the name of a volume in ops and in errors.
func (b *Verbs) VolumeKey(id cloud.VolumeID) string { return b.traits.VolumeWord + " " + string(id) }

// machineKey returns the name of a machine in ops and in errors.
func (b *Verbs) machineKey(id cloud.NodeID) string { return b.traits.MachineWord + " " + string(id) }

// related returns the machine for ops.Op.Related, if its operations include those of its volumes.
func (b *Verbs) related(id cloud.NodeID) string {
	if !b.traits.MachineHasDisks {
		return ""
	}
	return b.machineKey(id)
}

// settled reads a volume when none of its operations is running; nil: there is none.
func (b *Verbs) settled(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*Volume, error) {
	return ops.Settle(ctx, b.ops, b.VolumeKey(id), func(ctx context.Context) (*Volume, error) { return b.api.Volume(ctx, id, p) })
}
