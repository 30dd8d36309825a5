// Package compat knows what the drivers of the clouds' vendors have left in a cluster: names, labels,
// keys and parameters. Under the name of such a driver this one serves its volumes as they are, and
// beside it while a cluster moves from one to the other.
package compat

import (
	"maps"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// Vendor is a driver that this one takes over from. A nil *Vendor has left nothing behind.
type Vendor struct {
	profile.Vendor
	// Cloud is the --cloud that its volumes are in.
	Cloud string

	// link returns the base name of a disk's link by what an attach of this driver told about it.
	link func(volume string, attached map[string]string) string
	// tell returns what its node program has to be told about the disk with this link.
	tell func(link string) map[string]string
	// handle returns how its driver writes the id of a volume with this name; nil: as the cloud does.
	handle func(id, name string) string
	// id returns the cloud's id of the volume with such a handle; nil with handle.
	id func(handle string) string
	// refuses returns why this driver cannot serve a volume with these attributes or parameters; nil: it always can.
	refuses func(attributes map[string]string) string
	// luks are the attributes of a volume that its node program encrypts with LUKS; nil: no attribute asks it to.
	luks map[string]string
	// luksKey is the one of them that decides: a volume with this value of it is encrypted.
	luksKey string
}

// Link returns the base name of the link to a volume's disk, if the vendor's controller has attached it
// and said so in the publish context; empty: it does not say.
func (v *Vendor) Link(volume string, attached map[string]string) string {
	if v == nil {
		return ""
	}
	return v.link(volume, attached)
}

// Tell returns what the vendor's node program needs in a publish context about the disk with this link.
func (v *Vendor) Tell(link string) map[string]string {
	if v == nil || link == "" {
		return nil
	}
	return v.tell(link)
}

// Handle returns the volume's id as the vendor's PersistentVolumes have it, which is id itself unless the
// vendor adds to it. Its other program may need what it adds.
func (v *Vendor) Handle(id, name string) string {
	if v == nil || v.handle == nil || name == "" {
		return id
	}
	return v.handle(id, name)
}

// ID returns the cloud's id of the volume with a handle.
func (v *Vendor) ID(handle string) string {
	if v == nil || v.id == nil {
		return handle
	}
	return v.id(handle)
}

// Refuses returns why this driver cannot serve a volume with these attributes, or make one of a class with
// these parameters, although the vendor's can; empty: it can.
func (v *Vendor) Refuses(attributes map[string]string) string {
	if v == nil || v.refuses == nil {
		return ""
	}
	return v.refuses(attributes)
}

// LUKS reports whether the attributes of a volume say that its driver's node program encrypts it.
func (v *Vendor) LUKS(attributes map[string]string) bool {
	return v != nil && v.luks != nil && attributes[v.luksKey] == v.luks[v.luksKey]
}

// LUKSAttributes returns what the vendor's node program needs in the attributes of a volume that is encrypted.
func (v *Vendor) LUKSAttributes() map[string]string {
	if v == nil {
		return nil
	}
	return v.luks
}

// Forbids returns the attribute of a volume that forbids to make a filesystem on it; empty: none does.
func (v *Vendor) Forbids(attributes map[string]string) string {
	if v == nil {
		return ""
	}
	for _, key := range v.NeverFormat {
		if _, present := attributes[key]; present {
			return key
		}
	}
	return ""
}

// Parameter returns our name of a StorageClass parameter, which is name itself unless it is one of the
// vendor's.
func (v *Vendor) Parameter(name string) string {
	if v != nil {
		if ours, known := v.Parameters[name]; known {
			return ours
		}
	}
	return name
}

// ParameterNames are the vendor's names of parameters.
func (v *Vendor) ParameterNames() []string {
	if v == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(v.Parameters))
}
