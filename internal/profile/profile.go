// Package profile has the facts about each cloud that the controller and the node program share. It is data and imports only the
// standard library, so that the node program links no SDK.
package profile

import (
	"maps"
	"slices"
)

// The kinds of places that volumes are bound to, as in --topology-key KEY=SCOPE.
const (
	ScopeRegion = "region"
	ScopeZone   = "zone"
	ScopeNode   = "node"
)

// Cloud describes a cloud.
type Cloud struct {
	// Scope is the kind of place that its volumes are bound to.
	Scope string
	// SnapshotZones: a snapshot can be restored only in the zone that it names.
	SnapshotZones bool
	// SnapshotBlocks: which blocks of a snapshot have data, and which differ from another snapshot, can be asked for.
	SnapshotBlocks bool
	// LinkPrefix is the prefix of the link in /dev/disk/by-id that udev makes for each attached volume; empty: volumes are not
	// attached.
	LinkPrefix string
	// Slots is the attach limit of every instance; 0: it depends on the instance.
	Slots int
	// Vendors are the other CSI drivers of this cloud that this driver can replace.
	Vendors []Vendor
}

// Vendor is another CSI driver.
type Vendor struct {
	// Driver is its CSI driver name.
	Driver string
	// TopologyKeys are the labels of its nodes and volumes, in the form of --topology-key.
	TopologyKeys []string
	// NeverFormat are attributes of a volume that forbid to make a filesystem on it, whatever their values.
	NeverFormat []string
	// Parameters maps the parameters of its StorageClasses to those of this driver with the same meaning: to TagWords if the form
	// differs, and to "" if the parameter has no effect of its own.
	Parameters map[string]string
}

// TagWords is the value in Parameters for tags that are comma-separated words instead of key-value pairs.
const TagWords = "tag words"

// FixedLUKSCipher and FixedLUKSKeySize are the values in Parameters for choices that this driver does not offer: it accepts only
// LUKSCipher and LUKSKeySize.
const (
	FixedLUKSCipher  = "LUKS cipher"
	FixedLUKSKeySize = "LUKS key size"

	LUKSCipher  = "aes-xts-plain64"
	LUKSKeySize = "512" // bits
)

// Of returns the cloud with this name of --cloud; false if there is none.
func Of(name string) (Cloud, bool) {
	c, known := clouds[name]
	return c, known
}

// Names returns the names of the clouds, sorted.
func Names() []string { return slices.Sorted(maps.Keys(clouds)) }
