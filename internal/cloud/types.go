package cloud

import (
	"fmt"
	"slices"
	"time"
)

// VolumeID names a volume for ever. It is the CSI volume handle.
type VolumeID string

// NodeID names a machine. It is the CSI node id.
type NodeID string

// SnapshotID names a snapshot for ever. It is the CSI snapshot id.
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

// OwnTags begins the keys of the driver's own tags.
const OwnTags = "cloudblock-"

// Tag is one tag or label on a volume or snapshot.
type Tag struct{ Key, Value string }

// Parameter is one StorageClass parameter that the backend asked for in Capabilities.Parameters.
type Parameter struct{ Name, Value string }

// Source is where the content of a new volume comes from: at most one field is set, and none means
// a blank volume.
type Source struct {
	Snapshot SnapshotID
	Volume   VolumeID
}

// Blank reports whether there is no source.
func (s Source) Blank() bool { return s == Source{} }

// Device is how a node recognises a volume among its disks. Empty fields are not known.
type Device struct {
	// Name is the base name of the device's link, or of the pool's file.
	Name string
	// Serial is what the disk itself says when asked.
	Serial string
}

// Volume is the state of a volume at one moment.
type Volume struct {
	ID VolumeID
	// Name is the request name it was created under, or the cloud's own name if that is not known.
	Name string
	Size Bytes
	// SizeStep is what the sizes are multiples of that it can grow to, where that is more than
	// Capabilities.SizeStep; else 0.
	SizeStep Bytes
	// Zone is the place of the volume, in the words of Capabilities.Scope.
	Zone   string
	Source Source
	// Parameters are the values that the volume has, sorted by name, as far as the cloud shows them. They include those
	// that the request left to the cloud.
	Parameters []Parameter
	// AttachedTo lists the nodes that have the volume, sorted. Empty where there is no attaching.
	AttachedTo []NodeID
	Device     Device
	Tags       []Tag
	Health     Health
	Mark       Mark
}

// Mark says whose an object in a cloud is, by what is written on the object itself and never by what it was made of.
// The zero value: nothing on it says so.
type Mark struct {
	// Driver: this driver made it, for whatever cluster.
	Driver bool
	// Cluster is the --cluster-id that it was made with; empty where only that cluster's controller can read it.
	Cluster string
	// Temporary: a clone goes through it, and no request asked for it.
	Temporary bool
}

// Health is what is wrong with a volume. The zero value is a volume with which nothing is known to be
// wrong.
type Health struct {
	Kind HealthKind
	// Reason names the condition for machines: one CamelCase word.
	Reason string
	// Message tells an operator what is wrong and what to do about it.
	Message string
}

// HealthKind says how bad it is.
type HealthKind string

// The kinds of health, from good to bad.
const (
	Healthy HealthKind = ""
	// Degraded: usable, but not as it should be.
	Degraded HealthKind = "degraded"
	// Inaccessible: not usable, and the data may be there.
	Inaccessible HealthKind = "inaccessible"
	// DataLoss: data is gone for good, or most probably so.
	DataLoss HealthKind = "data loss"
)

// CreateVolumeRequest asks for one volume.
type CreateVolumeRequest struct {
	// Name identifies the request: two requests with one name mean one volume. Any string that CSI
	// allows; the backend maps it to a name that its cloud allows.
	Name string
	// Size is a multiple of Capabilities.SizeStep within its bounds.
	Size Bytes
	// Limit is the largest size that is acceptable, or 0 for any.
	Limit Bytes
	// Zones are the acceptable places, best first; the first that can serve is taken. Empty means
	// the backend's own choice.
	Zones  []string
	Source Source
	// Parameters holds only names from Capabilities.Parameters, sorted by name.
	Parameters []Parameter
	Tags       []Tag
}

// FitsExisting reports whether a volume found under the request's name is what the request asks for.
func (r CreateVolumeRequest) FitsExisting(v Volume) bool {
	return v.Size >= r.Size && (r.Limit == 0 || v.Size <= r.Limit) && r.FitsButForSize(v)
}

// FitsButForSize reports whether a volume found under the request's name is what the request asks
// for, or becomes it by growing. A parameter that the request leaves out fits any value: the cloud chose it.
func (r CreateVolumeRequest) FitsButForSize(v Volume) bool {
	return v.Source == r.Source &&
		(len(r.Zones) == 0 || slices.Contains(r.Zones, v.Zone)) &&
		!slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return !slices.Contains(v.Parameters, p) })
}

// Expansion is the outcome of making a volume larger.
type Expansion struct {
	// Size is the real size of the volume now.
	Size Bytes
	// NodeMustConfirm: a node has the disk and sees the new size only once the disk is attached anew, so
	// the node's answer is needed for block volumes too.
	NodeMustConfirm bool
}

// Snapshot is the state of a snapshot at one moment.
type Snapshot struct {
	ID SnapshotID
	// Name is the request name it was created under, or the cloud's own name if that is not known.
	Name   string
	Volume VolumeID
	// Zone is the only place where it can be restored, or empty if that is everywhere.
	Zone string
	// Size is the smallest size of a volume restored from it.
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
	Tags   []Tag
}

// Page asks for a part of a list.
type Page struct {
	// Token is the Next of the page before, or empty for the first.
	Token string
	// Most is the largest number of entries wanted, or 0 for as many as the backend likes.
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
