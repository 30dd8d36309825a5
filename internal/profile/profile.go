// Package profile has the facts of each cloud that both programs need, and that a backend shares with the node program.
// It is data and imports nothing, so that the node program links no SDK with it.
package profile

import (
	"maps"
	"slices"
)

// What the volumes of a cloud are bound to, in the words of the flag --topology-key.
const (
	ScopeRegion = "region"
	ScopeZone   = "zone"
	ScopeNode   = "node"
)

// Cloud is what a cloud is.
type Cloud struct {
	// Scope is what its volumes are bound to.
	Scope string
	// SnapshotZones: a snapshot can be restored only in the zone that it names.
	SnapshotZones bool
	// LinkPrefix begins the link in /dev/disk/by-id that udev makes for each attached volume; empty: volumes are not
	// attached.
	LinkPrefix string
	// Slots is how many volumes a machine can have; 0: that depends on the machine.
	Slots int
	// Vendors are the other CSI drivers of this cloud in whose place ours can work.
	Vendors []Vendor
}

// Vendor is the names of another CSI driver.
type Vendor struct {
	// Driver is its CSI driver name.
	Driver string
	// TopologyKeys are the labels of its nodes and volumes, in the form of --topology-key.
	TopologyKeys []string
	// NeverFormat are attributes of a volume whose presence, with whatever value, forbids to make a filesystem on it.
	NeverFormat []string
	// Parameters are those of its StorageClasses, each with the name of ours that means the same: TagWords where ours
	// takes another form, and nothing where it has no effect of its own.
	Parameters map[string]string
}

// TagWords is what Parameters has for tags that are words, separated by commas, and not pairs of key and value.
const TagWords = "tag words"

// FixedLUKSCipher and FixedLUKSKeySize are what Parameters has for a choice that this driver does not have: only LUKSCipher
// and LUKSKeySize are accepted.
const (
	FixedLUKSCipher  = "LUKS cipher"
	FixedLUKSKeySize = "LUKS key size"

	LUKSCipher  = "aes-xts-plain64"
	LUKSKeySize = "512" // bits
)

// Of returns the cloud that --cloud names, and false if there is none.
func Of(name string) (Cloud, bool) {
	c, known := clouds[name]
	return c, known
}

// Names are the clouds, in order.
func Names() []string { return slices.Sorted(maps.Keys(clouds)) }
