package compat

import (
	"slices"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// vendors are all that there are.
var vendors = complete(map[string]func(profile.Cloud, *Vendor){"digitalocean": digitalOcean, "linode": linode, "yandex": yandex})

// complete adds to what the profiles say of the vendors how each writes and reads.
func complete(clouds map[string]func(profile.Cloud, *Vendor)) (all []*Vendor) {
	for name, complement := range clouds {
		c, _ := profile.Of(name)
		for _, v := range c.Vendors {
			vendor := &Vendor{Vendor: v, Cloud: name}
			complement(c, vendor)
			all = append(all, vendor)
		}
	}
	return all
}

// Of returns the vendor whose driver has this name; nil if it is no vendor's.
func Of(driver string) *Vendor {
	if i := slices.IndexFunc(vendors, func(v *Vendor) bool { return v.Driver == driver }); i >= 0 {
		return vendors[i]
	}
	return nil
}
