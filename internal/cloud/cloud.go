// Package cloud is the contract between the controller and a place that keeps volumes.
//
// A backend translates these methods into the calls of one cloud and nothing more: idempotency
// and retry are decorators (internal/cloud/middleware), locks are the driver's. What the
// comments below say is checked by internal/cloud/cloudtest as far as a fake can show it, and every backend passes.
//
// Five rules hold for every method:
//   - Every error carries a kind of package fault, or is (wraps) the context's own error.
//   - A context that ends stops the waiting, never a change already sent. If a write was sent and
//     its outcome is not known, the error carries fault.Uncertain, whatever else it carries.
//   - An id that this backend cannot have made is answered like one of a missing object
//     (fault.NotFound where that is an error), and no request leaves the program.
//   - An object of another place of the same kind, which cannot be asked from here (a volume of
//     another node), may well exist. Reads do not find it; a change or a snapshot of it is
//     fault.Precondition, a copy of it is fault.Exhausted, and both name that place.
//   - What a person has to act on carries a reason of package fault: a second attachment AttachedElsewhere, a full
//     node NoSlot, zones that cannot serve NoZone, the deletion of a volume in use VolumeInUse, a copy of what is in
//     another place SourceElsewhere.
package cloud

import (
	"context"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Cloud is a place that keeps volumes. Its methods are safe for concurrent use.
type Cloud interface {
	Volumes
	Attacher
	Snapshots

	// Capabilities says what the backend can do and which limits it has. It is constant, needs no
	// request and never fails.
	Capabilities() Capabilities

	// Capacity returns how many more bytes of volumes with these parameters can be created in the zone
	// ("" means the backend's own zone). fault.Unsupported unless Capabilities.Capacity; fault.NotFound
	// for a zone that the backend does not serve; fault.InvalidArgument for a parameter that it does not
	// understand.
	Capacity(ctx context.Context, zone string, class []Parameter) (Bytes, error)

	// Check proves with cheap reads that the backend can be reached and accepts the credentials. fault.Denied when
	// it does not accept them, or does not let them do what the driver needs, as far as a read can prove that; the
	// error names each right that is missing.
	Check(ctx context.Context) error
}

// Volumes is the part of a Cloud that keeps volumes.
type Volumes interface {
	// CreateVolume makes a volume and returns when it is ready to be attached. Each parameter of the
	// request is one of the volume's, which may have others that the cloud chose. It sends the write
	// without looking first: if the name is taken, by whatever volume, it changes nothing and
	// answers fault.Conflict (package middleware settles whether that volume is the wanted one).
	// The answer's Size is the real one, at least the request's. fault.Exhausted, fault.OutOfRange
	// and fault.InvalidArgument are given only when nothing of this call is left behind.
	// fault.NotFound when the source does not exist; fault.InvalidArgument when the backend cannot
	// serve that kind of source. fault.Exhausted when none of the request's zones can serve.
	CreateVolume(ctx context.Context, req CreateVolumeRequest) (Volume, error)

	// FindVolume returns the volume that CreateVolume made under this request name, once it is
	// ready like a created one and no growth of it is under way. fault.NotFound when there is none.
	// fault.Conflict when the cloud's name for it is held by a volume of another request or another
	// cluster.
	FindVolume(ctx context.Context, name string) (Volume, error)

	// GetVolume returns the present state of a volume and does not wait. fault.NotFound when there
	// is none.
	GetVolume(ctx context.Context, id VolumeID) (Volume, error)

	// DeleteVolume removes the volume with exactly this id and returns when it is gone. A volume
	// that does not exist is not an error, so calling twice is not one either. A volume that is
	// attached or in use is fault.Precondition and stays as it is.
	DeleteVolume(ctx context.Context, id VolumeID) error

	// ListVolumes returns one page, in an order that is stable while volumes come and go. A page is
	// complete or an error. fault.StalePage for a token that no earlier page returned.
	ListVolumes(ctx context.Context, page Page) (VolumeList, error)

	// ExpandVolume makes a volume at least this large, rounded up to no more than its next step
	// (Volume.SizeStep), and returns when the cloud has done so. It never shrinks: a size at or below
	// the present one is answered with the present size and changes nothing, so calling twice is the
	// same as once. fault.NotFound when there is no such volume, fault.OutOfRange above
	// Capabilities.LargestVolume, fault.Precondition where the cloud refuses while the volume is
	// attached. fault.Unsupported unless Capabilities.Expand.
	ExpandVolume(ctx context.Context, id VolumeID, size Bytes) (Expansion, error)

	// ModifyVolume puts tags on a volume and returns when the cloud shows them there. Each replaces what the volume
	// has under its key, and all others stay. Tags that are there already change nothing, so calling twice is the
	// same as once. fault.NotFound when there is no such volume; fault.InvalidArgument, and nothing is changed, for a
	// tag that the cloud would refuse and for one of the driver's own. fault.Unsupported unless Capabilities.Modify; a
	// backend that cannot embeds NoModify.
	ModifyVolume(ctx context.Context, id VolumeID, tags []Tag) error
}

// Attacher is the part of a Cloud that attaches volumes to machines. Both methods answer
// fault.Unsupported unless Capabilities.Attach.
type Attacher interface {
	// Attach makes the volume a disk of the node and returns when the cloud shows it there. Attached
	// to this node already: no error. Attached to another node: fault.Precondition naming that node.
	// A volume of another zone than the node's: fault.Precondition. No such volume or node:
	// fault.NotFound. No free slot: fault.Exhausted.
	Attach(ctx context.Context, id VolumeID, node NodeID) (Device, error)

	// Detach takes the volume off the node ("" means off whatever node) and returns when a state
	// read or reported after the change shows it free of that node. Not attached there, and a volume
	// or node that does not exist: no error. It never takes the volume off another node.
	Detach(ctx context.Context, id VolumeID, node NodeID) error
}

// Snapshots is the part of a Cloud that keeps snapshots. Every method answers fault.Unsupported
// unless Capabilities.Snapshots; a backend without snapshots embeds NoSnapshots.
type Snapshots interface {
	// CreateSnapshot makes a snapshot of a volume, which may be in use: the snapshot holds what was synced
	// before. It may return before it is Ready. It sends the write without looking first: a name that is
	// taken is fault.Conflict, as for CreateVolume. fault.NotFound when the volume does not exist,
	// fault.Precondition when the volume as it is now cannot be snapshotted, fault.Exhausted when there
	// is no space. After these nothing of the call is left behind.
	CreateSnapshot(ctx context.Context, req CreateSnapshotRequest) (Snapshot, error)

	// FindSnapshot returns the snapshot that CreateSnapshot made under this request name, ready or not.
	// fault.NotFound when there is none, fault.Conflict as for FindVolume.
	FindSnapshot(ctx context.Context, name string) (Snapshot, error)

	// GetSnapshot returns the present state of a snapshot. fault.NotFound when there is none.
	GetSnapshot(ctx context.Context, id SnapshotID) (Snapshot, error)

	// DeleteSnapshot removes the snapshot with exactly this id and returns when it is gone. A
	// snapshot that does not exist is not an error. Volumes restored from it live on.
	DeleteSnapshot(ctx context.Context, id SnapshotID) error

	// ListSnapshots returns one page, of all snapshots or of one volume's, under the rules of
	// ListVolumes. Those through which clones go are listed too, and Mark.Temporary. A volume that does not exist has no
	// snapshots.
	ListSnapshots(ctx context.Context, of VolumeID, page Page) (SnapshotList, error)
}

// Capabilities says what a backend can do and which limits it has. Shared code reads these fields
// and never asks which cloud it is.
type Capabilities struct {
	// Attach: volumes are attached to nodes by the controller.
	Attach bool
	// Expand: the controller can make volumes larger.
	Expand bool
	// Snapshots: snapshots can be made, listed, removed and restored.
	Snapshots bool
	// SnapshotZones: a snapshot can be restored only in the zone that it names. Otherwise it names
	// none and can be restored everywhere.
	SnapshotZones bool
	// Clones: a volume can be made as a copy of another.
	Clones bool
	// Capacity: the free space is known and true.
	Capacity bool
	// Modify: the tags of a volume can be changed later.
	Modify bool
	// Health: volumes tell what is wrong with them. Otherwise all of them look healthy.
	Health bool

	// Scope is what a zone of this backend is.
	Scope Scope
	// SizeStep divides every size. At least 1.
	SizeStep Bytes
	// SmallestVolume and LargestVolume bound the sizes that can be created or grown to.
	SmallestVolume, LargestVolume Bytes
	// DefaultSize is used when a request names no size.
	DefaultSize Bytes
	// Parameters are the StorageClass parameters that the backend understands, by name.
	Parameters []string
	// Defaults are what a class means that leaves these parameters out; requests carry them. A volume
	// with another value does not fit such a class.
	Defaults []Parameter
}

// Scope is the kind of place that a volume is bound to.
type Scope string

// The scopes, in the words of the flag --topology-key.
const (
	ScopeRegion Scope = "region"
	ScopeZone   Scope = "zone"
	ScopeNode   Scope = "node"
)

// NoModify is embedded by a backend whose volumes have no tags that can be changed.
type NoModify struct{}

// ModifyVolume answers fault.Unsupported.
func (NoModify) ModifyVolume(_ context.Context, id VolumeID, _ []Tag) error {
	return fmt.Errorf("modify volume %.80q: %w", id, fault.Unsupported)
}

// NoSnapshots is embedded by a backend whose cloud has no snapshots: every method answers
// fault.Unsupported.
type NoSnapshots struct{}

var _ Snapshots = NoSnapshots{}

var errNoSnapshots = fmt.Errorf("snapshots: %w", fault.Unsupported)

// CreateSnapshot answers fault.Unsupported.
func (NoSnapshots) CreateSnapshot(context.Context, CreateSnapshotRequest) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// FindSnapshot answers fault.Unsupported.
func (NoSnapshots) FindSnapshot(context.Context, string) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// GetSnapshot answers fault.Unsupported.
func (NoSnapshots) GetSnapshot(context.Context, SnapshotID) (Snapshot, error) {
	return Snapshot{}, errNoSnapshots
}

// DeleteSnapshot answers fault.Unsupported.
func (NoSnapshots) DeleteSnapshot(context.Context, SnapshotID) error { return errNoSnapshots }

// ListSnapshots answers fault.Unsupported.
func (NoSnapshots) ListSnapshots(context.Context, VolumeID, Page) (SnapshotList, error) {
	return SnapshotList{}, errNoSnapshots
}
