// Package block has the verbs of block storage once, for every cloud whose volumes are attached to machines by requests:
// what is safe in a change does not depend on the cloud. A backend says what its cloud is like (Traits) and sends the requests
// (API); this package decides when they are sent and what a refusal means, and package ops carries the changes out.
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

// Volume is what a read shows of a volume.
type Volume struct {
	cloud.Volume

	// Changing: the volume itself shows that something is under way with it.
	Changing bool
	// SizeOpen: its size may be that of a growth which has not ended, and is taken back if that fails.
	SizeOpen bool
	// Hindered is why the volume cannot be changed now, such as a state that the cloud calls an error; nil: nothing is.
	Hindered error
	// Fit returns the smallest size of at least size that it can grow to; nil: sizes are multiples of a GiB.
	Fit func(size cloud.Bytes) (cloud.Bytes, error)
	// Version differs where anything of the volume was changed, as far as the cloud shows it.
	Version string
}

// on reports whether the volume is attached to a machine, or about to be.
func (v *Volume) on(machine cloud.NodeID) bool {
	for _, id := range v.AttachedTo {
		if id == machine {
			return true
		}
	}
	return false
}

// Machine is what a read shows of a machine, as far as it says why a volume is not attached to it or detached from it.
type Machine struct {
	Zone string
	// Used of Slots are taken. Slots is 0 where only a refusal says that a machine is full.
	Used, Slots int
	// Hindered is why the machine takes no change now; nil: nothing is.
	Hindered error
	// Disks are the volumes that it has by its own record (Traits.MachineHasDisks).
	Disks map[cloud.VolumeID]Disk
}

// Disk is how a machine has a volume.
type Disk struct {
	// Device is how the machine recognises it, where that is not the volume's own.
	Device         cloud.Device
	Boot, ReadOnly bool
}

// API is what a cloud's API can do. Each method sends one request. A change returns the id of the operation that it began, or
// "" where it has ended with the answer.
type API interface {
	// Volume reads a volume, and Machine a machine; nil: there is none, or soon will be none.
	Volume(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*Volume, error)
	Machine(ctx context.Context, id cloud.NodeID) (*Machine, error)

	// Attach also returns how the machine recognises the volume. Its error is fault.Exhausted only where the machine is full.
	Attach(ctx context.Context, w *ops.Write, id cloud.VolumeID, to cloud.NodeID) (device cloud.Device, operation string, err error)
	Detach(ctx context.Context, w *ops.Write, id cloud.VolumeID, from cloud.NodeID) (operation string, err error)
	Resize(ctx context.Context, w *ops.Write, v *Volume, size cloud.Bytes) (operation string, err error)
	// Delete succeeds where there is no such volume any more.
	Delete(ctx context.Context, w *ops.Write, id cloud.VolumeID) (operation string, err error)
}

// Traits are the facts of a cloud.
type Traits struct {
	// VolumeWord and MachineWord are the cloud's own, such as "disk" and "instance".
	VolumeWord, MachineWord string
	// VolumeID and MachineID report whether the cloud can have made an id. Others never become part of a request.
	VolumeID   func(cloud.VolumeID) bool
	MachineID  func(cloud.NodeID) bool
	SnapshotID func(cloud.SnapshotID) bool // nil: there are no snapshots
	Zone       func(string) bool
	// Largest is the size of the largest volume.
	Largest cloud.Bytes

	// ShowsChanges: a volume shows at once that it is about to be attached, or grows. Else it shows so in the end.
	ShowsChanges bool
	// Lease, unless it is 0, is for a cloud whose detach names no machine, and which may delete what is attached: both are sent
	// within this time after a read or not at all. It needs ShowsChanges.
	Lease time.Duration
	// MachineHasDisks: a machine's record shows its volumes too, and its operations include theirs.
	MachineHasDisks bool
	// GrowsOnMachine: a machine makes one change at a time, and the growth of a volume that it has is one.
	GrowsOnMachine bool
	// ConfirmsLate: a machine sees that a volume has grown only when the volume is attached the next time.
	ConfirmsLate bool
	// NoGrowthAttached reports whether the cloud refuses a growth because the volume is attached; nil: it never does.
	NoGrowthAttached func(refusal error) bool
	// Locks returns what besides an attachment keeps a volume from being deleted, in words; nil: nothing does.
	Locks func(ctx context.Context, id cloud.VolumeID) string
}

// Verbs are those methods of cloud.Cloud that change a volume.
type Verbs struct {
	traits Traits
	api    API
	ops    *ops.Runner
	// reads are shared by all that ask within a moment.
	reads *ops.Reads[cloud.VolumeID, *Volume]
}

// New returns the verbs of a cloud. page reads all volumes with one request, or returns nil where one does not show all; it may be
// nil.
func New(traits Traits, api API, runner *ops.Runner, page func(context.Context) (map[cloud.VolumeID]*Volume, error)) *Verbs {
	b := &Verbs{traits: traits, api: api, ops: runner}
	b.reads = ops.NewReads(runner, func(ctx context.Context, id cloud.VolumeID) (*Volume, error) { return api.Volume(ctx, id, budget.Read) }, page)
	return b
}

// Get reads a volume, together with others that are asked for at the moment. fault.NotFound when there is none.
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

// GetVolume returns the present state of a volume.
func (b *Verbs) GetVolume(ctx context.Context, id cloud.VolumeID) (cloud.Volume, error) {
	v, err := b.Get(ctx, id)
	if err != nil {
		return cloud.Volume{}, err
	}
	return v.Volume, nil
}

// noSuchID is an id that the cloud cannot have made.
func (b *Verbs) noSuchID(doing string, id cloud.VolumeID) error {
	return fmt.Errorf("%s%s %.80q: %w: no %s has such an id", doing, b.traits.VolumeWord, id, fault.NotFound, b.traits.VolumeWord)
}

// VolumeKey names a volume in ops, and in errors.
func (b *Verbs) VolumeKey(id cloud.VolumeID) string { return b.traits.VolumeWord + " " + string(id) }

// MachineKey names a machine in ops, and in errors.
func (b *Verbs) MachineKey(id cloud.NodeID) string { return b.traits.MachineWord + " " + string(id) }

// related is the machine in ops where its operations may be about its volumes.
func (b *Verbs) related(id cloud.NodeID) string {
	if !b.traits.MachineHasDisks {
		return ""
	}
	return b.MachineKey(id)
}

// settled reads a volume once nothing is under way with it; nil: there is none.
func (b *Verbs) settled(ctx context.Context, id cloud.VolumeID, p budget.Priority) (*Volume, error) {
	for { // another controller may begin something before the read
		v, err := ops.Settle(ctx, b.ops, b.VolumeKey(id), func(ctx context.Context) (*Volume, error) { return b.api.Volume(ctx, id, p) })
		if err != nil || v == nil || !v.Changing {
			return v, err
		}
	}
}
