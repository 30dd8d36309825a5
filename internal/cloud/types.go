package cloud

import (
	"fmt"
	"slices"
	"time"
)

// VolumeID identifies a volume permanently. It is the CSI volume handle.
type VolumeID string

// NodeID identifies a node. It is the CSI node id.
type NodeID string

// SnapshotID identifies a snapshot permanently. It is the CSI snapshot id.
type SnapshotID string

// Bytes is a size in bytes.
type Bytes int64

// The binary multiples.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// String returns the size in the largest unit that divides it, such as "20 GiB".
func (b Bytes) String() string {
	switch {
	case b == 0:
		return "0 bytes"
	case b%TiB == 0:
		return fmt.Sprintf("%d TiB", b/TiB)
	case b%GiB == 0:
		return fmt.Sprintf("%d GiB", b/GiB)
	case b%MiB == 0:
		return fmt.Sprintf("%d MiB", b/MiB)
	case b%KiB == 0:
		return fmt.Sprintf("%d KiB", b/KiB)
	default:
		return fmt.Sprintf("%d bytes", int64(b))
	}
}

// OwnTags is the prefix of the keys of the driver's own tags.
const OwnTags = "cloudblock-"

// Tag is one tag or label on a volume or snapshot.
type Tag struct{ Key, Value string }

// Parameter is a StorageClass parameter that Capabilities.Parameters lists.
type Parameter struct{ Name, Value string }

// Source is the source of a new volume's content: at most one field is set, and none means a blank volume.
type Source struct {
	Snapshot SnapshotID
	Volume   VolumeID
}

// Blank reports whether there is no source.
func (s Source) Blank() bool { return s == Source{} }

// Device identifies a volume among the disks of a node. Empty fields are unknown.
type Device struct {
	// Name is the base name of the device's link, or of the pool's file.
	Name string
	// Serial is the serial number that the disk reports.
	Serial string
}

// Volume is the state of a volume at one moment.
type Volume struct {
	ID VolumeID
	// Name is the request name it was created under, or the cloud's own name if that is not known.
	Name string
	Size Bytes
	// SizeStep is the unit of the sizes to which the volume can grow, if it is larger than Capabilities.SizeStep; else 0.
	SizeStep Bytes
	// Created is when the volume was created, in UTC; zero if the backend does not know.
	Created time.Time
	// Zone is the place of the volume, of the kind Capabilities.Scope.
	Zone   string
	Source Source
	// Parameters are the parameters of the volume, sorted by name, as far as the cloud shows them. They include those that the
	// request left to the cloud.
	Parameters []Parameter
	// AttachedTo has the nodes that the volume is attached to, sorted. It is empty without Capabilities.Attach.
	AttachedTo []NodeID
	Device     Device
	Tags       []Tag
	Health     Health
	Mark       Mark
}

// Mark is the owner of an object in a cloud, according to what is stored with the object itself and never according to its source.
// The zero value: nothing stored with the object identifies its owner.
type Mark struct {
	// Driver: this driver created it, for any cluster.
	Driver bool
	// Cluster is the --cluster-id of the controller that created it; empty if only that cluster's controller can read it.
	Cluster string
	// Temporary: it is the temporary snapshot of a clone, which no request has asked for.
	Temporary bool
}

// Health is the health of a volume. The zero value is that of a volume without known problems.
type Health struct {
	Kind HealthKind
	// Reason identifies the condition for programs: one CamelCase word.
	Reason string
	// Message tells an operator what is wrong and what to do about it.
	Message string
}

// HealthKind is the severity of a problem.
type HealthKind string

// The kinds of health, from good to bad.
const (
	Healthy HealthKind = ""
	// Degraded: usable, but impaired.
	Degraded HealthKind = "degraded"
	// Inaccessible: not usable; the data may still exist.
	Inaccessible HealthKind = "inaccessible"
	// DataLoss: data is lost permanently, or most probably is.
	DataLoss HealthKind = "data loss"
)

// CreateVolumeRequest asks for one volume.
type CreateVolumeRequest struct {
	// Name identifies the request: two requests with one name are for the same volume. It is any string that CSI allows; the
	// backend maps it to a name that its cloud allows.
	Name string
	// Size is a multiple of Capabilities.SizeStep within its bounds.
	Size Bytes
	// Limit is the maximum acceptable size; 0 means any.
	Limit Bytes
	// Zones are the acceptable places in the order of preference; the first that can serve the request is used. If empty, the
	// backend chooses.
	Zones  []string
	Source Source
	// Parameters holds only names from Capabilities.Parameters, sorted by name.
	Parameters []Parameter
	Tags       []Tag
}

// FitsExisting reports whether a volume that has the request's name satisfies the request.
func (r CreateVolumeRequest) FitsExisting(v Volume) bool {
	return v.Size >= r.Size && (r.Limit == 0 || v.Size <= r.Limit) && r.FitsButForSize(v)
}

// FitsButForSize is FitsExisting without the check of the size. A parameter that the request leaves out fits any value: the cloud
// chose it.
func (r CreateVolumeRequest) FitsButForSize(v Volume) bool {
	return v.Source == r.Source &&
		(len(r.Zones) == 0 || slices.Contains(r.Zones, v.Zone)) &&
		!slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return !slices.Contains(v.Parameters, p) })
}

// Expansion is the result of ExpandVolume.
type Expansion struct {
	// Size is the actual size of the volume now.
	Size Bytes
	// NodeMustConfirm: a node has the disk and shows the new size only after the disk is attached again, so block volumes need a
	// node expansion too.
	NodeMustConfirm bool
}

// BlocksRequest asks for the blocks of the snapshot Target that may have data, or with a Base for those that may differ from that
// snapshot, which is of the same volume. All others read as zeros, or as in the Base.
type BlocksRequest struct {
	Target SnapshotID
	Base   SnapshotID
	// From is the first byte that is of interest.
	From Bytes
}

// BlockList is a part of the answer to a BlocksRequest.
type BlockList struct {
	// Size is that of the Target.
	Size   Bytes
	Blocks []BlockRange
}

// BlockRange is a part of a volume.
type BlockRange struct{ Offset, Length Bytes }

// Snapshot is the state of a snapshot at one moment.
type Snapshot struct {
	ID SnapshotID
	// Name is the request name it was created under, or the cloud's own name if that is not known.
	Name   string
	Volume VolumeID
	// Zone is the only place where it can be restored, or empty if that is everywhere.
	Zone string
	// Size is the minimum size of a volume restored from it.
	Size    Bytes
	Created time.Time
	// Ready: it can be restored.
	Ready bool
	Mark  Mark
}

// CreateSnapshotRequest asks for a snapshot of a volume.
type CreateSnapshotRequest struct {
	// Name identifies the request, as for CreateVolumeRequest.
	Name   string
	Volume VolumeID
	// Parameters holds only names from Capabilities.SnapshotParameters, sorted by name.
	Parameters []Parameter
	Tags       []Tag
}

// Page requests a part of a list.
type Page struct {
	// Token is the Next of the previous page; empty for the first.
	Token string
	// Most is the maximum number of entries; 0 lets the backend choose.
	Most int
}

// VolumeList is a page of volumes. Next is empty on the last.
type VolumeList struct {
	Volumes []Volume
	Next    string
}

// SnapshotList is a page of snapshots. Next is empty on the last.
type SnapshotList struct {
	Snapshots []Snapshot
	Next      string
}
