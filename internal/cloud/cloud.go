// Package cloud is the contract between the controller and a backend, which stores volumes in one cloud or on one node.
//
// A backend translates these methods into the calls of one cloud and nothing more: idempotency and retry are decorators
// (internal/cloud/middleware), locks are the driver's. internal/cloud/cloudtest checks the sentences below as far as a fake can
// show them, and every backend passes.
//
// Five rules hold for every method:
//   - Every error has a kind of package fault, or wraps the context's own error.
//   - The end of a context stops the waiting, never a change already sent. If a write was sent and its outcome is unknown, the
//     error has fault.Uncertain, in addition to any other kind.
//   - An id that this backend cannot have made is answered like that of a missing object (fault.NotFound where that is an error),
//     without a request to the cloud.
//   - An object in another place of the same kind that this backend cannot query (a volume of another node) may exist. Reads do not
//     find it; a change or a snapshot of it is fault.Precondition, a copy of it is fault.Exhausted, and both name that place.
//   - An error that an operator has to act on has a reason of package fault: a second attachment AttachedElsewhere, a full node
//     NoSlot, zones that cannot serve NoZone, the deletion of a volume in use VolumeInUse, a copy from another place
//     SourceElsewhere.
package cloud

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Cloud is a backend. Its methods are safe for concurrent use.
type Cloud interface {
	Volumes
	Attacher
	Snapshots

	// Capabilities returns what the backend can do and its limits. They are constant; the method sends no request and never fails.
	Capabilities() Capabilities

	// Capacity returns how many bytes of new volumes with these parameters fit in the zone ("" means the backend's own zone).
	// fault.Unsupported unless Capabilities.Capacity; fault.NotFound for a zone that the backend does not serve;
	// fault.InvalidArgument for a parameter that it does not understand. A backend that does not know the space embeds NoCapacity.
	Capacity(ctx context.Context, zone string, class []Parameter) (Bytes, error)

	// Check proves with cheap reads that the backend can be reached and accepts the credentials. fault.Denied if it does not accept
	// them, or if they lack a right that the driver needs, as far as a read can prove that; the error names each missing right.
	Check(ctx context.Context) error
}

// Volumes is the part of a Cloud for volumes.
type Volumes interface {
	// CreateVolume creates a volume and returns when it is ready to be attached. The volume has every parameter of the request, and
	// may have others that the cloud chose. CreateVolume sends the write without a read before it, unless the cloud has names twice:
	// if any volume has the name, it changes nothing and returns fault.Conflict (package middleware finds out whether that volume is
	// the requested one). Size in the result is the actual size, at least the request's. fault.Exhausted, fault.OutOfRange and
	// fault.InvalidArgument are returned only if nothing of this call is left behind. fault.NotFound if the source does not exist;
	// fault.InvalidArgument if the backend cannot serve that kind of source. fault.Exhausted if none of the request's zones can serve
	// it.
	CreateVolume(ctx context.Context, req CreateVolumeRequest) (Volume, error)

	// FindVolume returns the volume that CreateVolume created for this request name, once it is ready as after CreateVolume and is
	// not growing. fault.NotFound if there is none. fault.Conflict if a volume of another request or another cluster has the
	// cloud's name for it.
	FindVolume(ctx context.Context, name string) (Volume, error)

	// GetVolume returns the current state of a volume and does not wait. fault.NotFound if there is none.
	GetVolume(ctx context.Context, id VolumeID) (Volume, error)

	// DeleteVolume deletes the volume with exactly this id and returns when it is gone. A volume that does not exist is not an
	// error, so neither is a second call. A volume that is attached or in use is fault.Precondition and stays unchanged.
	DeleteVolume(ctx context.Context, id VolumeID) error

	// ListVolumes returns one page, in an order that stays the same while volumes are created and deleted. A page is complete or an
	// error. fault.StalePage for a token that no earlier page returned, or whose place cannot be found any more.
	ListVolumes(ctx context.Context, page Page) (VolumeList, error)

	// ExpandVolume grows a volume to at least this size, rounded up at most to its next step (Volume.SizeStep), and returns when
	// the cloud has done so. It never shrinks a volume: for a size at or below the current one it changes nothing and returns the
	// current size, so a second call changes nothing. fault.NotFound if there is no such volume, fault.OutOfRange above
	// Capabilities.LargestVolume, fault.Precondition if the cloud refuses because the volume is attached. fault.Unsupported unless
	// Capabilities.Expand.
	ExpandVolume(ctx context.Context, id VolumeID, size Bytes) (Expansion, error)

	// ModifyVolume sets tags on a volume and returns when the cloud shows them. Each tag replaces that with its key; all others
	// stay. Tags that the volume already has change nothing, so a second call changes nothing. fault.NotFound if there is no such
	// volume; fault.InvalidArgument, without a change, for a tag that the cloud would refuse and for one of the driver's own.
	// fault.Unsupported unless Capabilities.Modify; a backend that cannot modify tags embeds NoModify.
	ModifyVolume(ctx context.Context, id VolumeID, tags []Tag) error
}

// Attacher is the part of a Cloud that attaches volumes to nodes. Both methods return fault.Unsupported unless Capabilities.Attach.
type Attacher interface {
	// Attach attaches the volume to the node and returns when the cloud shows it there. Attached to this node already: no error.
	// Attached to another node: fault.Precondition naming that node. A volume of another zone than the node's: fault.Precondition. No
	// such volume or node: fault.NotFound. No free slot: fault.Exhausted.
	Attach(ctx context.Context, id VolumeID, node NodeID) (Device, error)

	// Detach detaches the volume from the node ("" means from any node) and returns when a state that was read or reported after
	// the change shows it detached from that node. Not attached there, and a volume or node that does not exist: no error. It never
	// detaches the volume from another node.
	Detach(ctx context.Context, id VolumeID, node NodeID) error
}

// Snapshots is the part of a Cloud for snapshots. Every method returns fault.Unsupported unless Capabilities.Snapshots; a backend
// without snapshots embeds NoSnapshots.
type Snapshots interface {
	// CreateSnapshot creates a snapshot of a volume, which may be in use: the snapshot has the data that was synced before. It may
	// return before the snapshot is Ready. It sends the write without a read before it: a name that is taken is fault.Conflict, as
	// for CreateVolume. fault.NotFound if the volume does not exist, fault.Precondition if the volume in its current state cannot
	// be snapshotted as the parameters demand, fault.Exhausted if there is no space. After these nothing of the call is left behind.
	CreateSnapshot(ctx context.Context, req CreateSnapshotRequest) (Snapshot, error)

	// FindSnapshot returns the snapshot that CreateSnapshot created for this request name, ready or not. fault.NotFound if there is
	// none, fault.Conflict as for FindVolume.
	FindSnapshot(ctx context.Context, name string) (Snapshot, error)

	// GetSnapshot returns the current state of a snapshot. fault.NotFound if there is none.
	GetSnapshot(ctx context.Context, id SnapshotID) (Snapshot, error)

	// DeleteSnapshot deletes the snapshot with exactly this id and returns when it is gone. A snapshot that does not exist is not
	// an error. Volumes restored from it remain.
	DeleteSnapshot(ctx context.Context, id SnapshotID) error

	// ListSnapshots returns one page, of all snapshots or of one volume's, under the rules of ListVolumes. It includes the
	// temporary snapshots of clones, which have Mark.Temporary. A volume that does not exist has no snapshots.
	ListSnapshots(ctx context.Context, of VolumeID, page Page) (SnapshotList, error)
}

// SnapshotBlocks is a part of those backends that have Capabilities.SnapshotBlocks. It is no part of Cloud.
type SnapshotBlocks interface {
	// ReadBlocks calls send, at least once, with the next blocks of the request's snapshot in ascending order. After an error, of send
	// too, what was sent is not all. send must not retain the list. fault.NotFound if a snapshot does not exist,
	// fault.InvalidArgument if the two are of different volumes, fault.OutOfRange for a start beyond the size. fault.Precondition if
	// which blocks have changed is not known, or only in another place, which the error names.
	ReadBlocks(ctx context.Context, req BlocksRequest, send func(BlockList) error) error
}

// Capabilities are what a backend can do and its limits. Shared code reads these fields and never asks which cloud it is.
type Capabilities struct {
	// Attach: volumes are attached to nodes by the controller.
	Attach bool
	// Expand: the controller can grow volumes.
	Expand bool
	// Snapshots: snapshots can be created, listed, deleted and restored.
	Snapshots bool
	// SnapshotZones: a snapshot can be restored only in its Snapshot.Zone. Otherwise that is empty, and the snapshot can be
	// restored everywhere.
	SnapshotZones bool
	// SnapshotBlocks: which blocks of a snapshot have data, and which have changed, can be asked for: see the interface.
	SnapshotBlocks bool
	// Clones: a volume can be created as a copy of another.
	Clones bool
	// Capacity: the available space is known and accurate.
	Capacity bool
	// Modify: the tags of a volume can be changed later.
	Modify bool
	// Health: volumes report their health. Otherwise all of them are Healthy.
	Health bool

	// Scope is what a zone of this backend is.
	Scope Scope
	// SizeStep is the unit of sizes: every size is a multiple of it. At least 1.
	SizeStep Bytes
	// SmallestVolume and LargestVolume bound the sizes that can be created or grown to.
	SmallestVolume, LargestVolume Bytes
	// DefaultSize is used when a request names no size.
	DefaultSize Bytes
	// Parameters are the StorageClass parameters that the backend understands, by name.
	Parameters []string
	// SnapshotParameters are the VolumeSnapshotClass parameters that the backend understands, by name.
	SnapshotParameters []string
	// Defaults are the values of parameters that a class leaves out; requests include them. A volume with another value does not
	// fit such a class.
	Defaults []Parameter
}

// Scope is the kind of place that a volume is bound to.
type Scope string

// The scopes, as in --topology-key KEY=SCOPE.
const (
	ScopeRegion Scope = "region"
	ScopeZone   Scope = "zone"
	ScopeNode   Scope = "node"
)

// NoModify is embedded by a backend whose volumes have no tags that can be changed.
type NoModify struct{}

// ModifyVolume returns fault.Unsupported.
func (NoModify) ModifyVolume(_ context.Context, id VolumeID, _ []Tag) error {
	return fmt.Errorf("modify volume %.80q: %w", id, fault.Unsupported)
}

// NoCapacity is embedded by a backend whose cloud does not report the available space.
type NoCapacity struct{}

// Capacity returns fault.Unsupported.
func (NoCapacity) Capacity(context.Context, string, []Parameter) (Bytes, error) {
	return 0, fmt.Errorf("capacity: %w", fault.Unsupported)
}

// NoSnapshots is embedded by a backend whose cloud has no snapshots: every method returns fault.Unsupported.
type NoSnapshots struct{}

var _ Snapshots = NoSnapshots{}

var errNoSnapshots = fmt.Errorf("snapshots: %w", fault.Unsupported)

// CreateSnapshot returns fault.Unsupported.
func (NoSnapshots) CreateSnapshot(context.Context, CreateSnapshotRequest) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// FindSnapshot returns fault.Unsupported.
func (NoSnapshots) FindSnapshot(context.Context, string) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// GetSnapshot returns fault.Unsupported.
func (NoSnapshots) GetSnapshot(context.Context, SnapshotID) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// DeleteSnapshot returns fault.Unsupported.
func (NoSnapshots) DeleteSnapshot(context.Context, SnapshotID) error { return errNoSnapshots }

// ListSnapshots returns fault.Unsupported.
func (NoSnapshots) ListSnapshots(context.Context, VolumeID, Page) (SnapshotList, error) {
	return SnapshotList{}, errNoSnapshots
}
