// Package compat has the names, labels, keys and parameters of the CSI drivers of the clouds' vendors. With the name of such a
// driver, this driver serves that driver's volumes unchanged, and can run next to it while a cluster migrates.
package compat

import (
	"maps"
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// Vendor is a driver that this one replaces. A nil *Vendor means that there is none.
type Vendor struct {
	profile.Vendor
	// Cloud is the --cloud of its volumes.
	Cloud string

	// link returns the base name of a disk's link according to a publish context of the vendor's controller.
	link func(volume string, attached map[string]string) string
	// tell returns the part of a publish context that the vendor's node program needs for the disk with this link.
	tell func(link string) map[string]string
	// handle returns the vendor's volume handle for the id and name of a volume; nil: it is the id.
	handle func(id, name string) string
	// id returns the cloud's id of the volume with such a handle; nil if handle is nil.
	id func(handle string) string
	// refuses returns why this driver cannot serve a volume with these attributes or parameters; nil: it always can.
	refuses func(attributes map[string]string) string
	// luks are the attributes of a volume that the vendor's node program encrypts with LUKS; nil: no attribute requests that.
	luks map[string]string
	// luksKey is the one of them that decides: a volume that has it with this value is encrypted.
	luksKey string
}

// Link returns the base name of the link to a volume's disk, if the vendor's controller has attached it and the publish context has
// the name; otherwise "".
func (v *Vendor) Link(volume string, attached map[string]string) string {
	if v == nil {
		return ""
	}
	return v.link(volume, attached)
}

// Tell returns the part of a publish context that the vendor's node program needs for the disk with this link.
func (v *Vendor) Tell(link string) map[string]string {
	if v == nil || link == "" {
		return nil
	}
	return v.tell(link)
}

// Handle returns the handle of a volume in the vendor's PersistentVolumes. It is id unless the vendor adds something, which its
// other program may need.
func (v *Vendor) Handle(id, name string) string {
	if v == nil || v.handle == nil || name == "" {
		return id
	}
	return v.handle(id, name)
}

// ID returns the id of the volume with a handle, which may be one of a vendor's driver.
func ID(cloud, handle string) string {
	for _, v := range vendors {
		if v.Cloud == cloud && v.id != nil {
			handle = v.id(handle)
		}
	}
	return handle
}

// Refuses returns why this driver cannot serve a volume with these attributes, or create one of a class with these parameters,
// although the vendor's can; "" if it can.
func (v *Vendor) Refuses(attributes map[string]string) string {
	if v == nil || v.refuses == nil {
		return ""
	}
	return v.refuses(attributes)
}

// LUKS reports whether the vendor's node program encrypts a volume with these attributes.
func (v *Vendor) LUKS(attributes map[string]string) bool {
	return v != nil && v.luks != nil && attributes[v.luksKey] == v.luks[v.luksKey]
}

// LUKSAttributes returns the attributes that the vendor's node program needs of an encrypted volume.
func (v *Vendor) LUKSAttributes() map[string]string {
	if v == nil {
		return nil
	}
	return v.luks
}

// Forbids returns the attribute of a volume that forbids to make a filesystem on it; "" if there is none.
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

// Parameter returns this driver's name of a StorageClass parameter, which is name itself unless it is one of the vendor's.
func (v *Vendor) Parameter(name string) string {
	if v != nil {
		if ours, known := v.Parameters[name]; known {
			return ours
		}
	}
	return name
}

// ParameterNames returns the vendor's names of parameters.
func (v *Vendor) ParameterNames() []string {
	if v == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(v.Parameters))
}
