package compat

import (
	"path"
	"slices"
	"strings"

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

// digitalOcean: its node program takes the volume's name, with which the link ends, from the publish context.
func digitalOcean(c profile.Cloud, v *Vendor) {
	volumeName := v.Driver + "/volume-name"
	v.link = func(_ string, attached map[string]string) string {
		if name := attached[volumeName]; name != "" {
			return c.LinkPrefix + name
		}
		return ""
	}
	v.tell = func(link string) map[string]string {
		name, ok := strings.CutPrefix(link, c.LinkPrefix)
		if !ok {
			return nil // no volume of this cloud
		}
		return map[string]string{volumeName: name}
	}
}

// linode: its node program takes the path of the link from the publish context, which ends with the volume's label.
func linode(c profile.Cloud, v *Vendor) {
	const (
		linkDir    = "/dev/disk/by-id/"
		devicePath = "devicePath"
		partition  = "partition"
	)
	v.link = func(_ string, attached map[string]string) string {
		device := attached[devicePath]
		if name, ok := strings.CutPrefix(path.Clean(device), linkDir); device != "" && ok {
			return name
		}
		return device // whole, so that a path elsewhere is seen to be no name
	}
	v.tell = func(link string) map[string]string {
		if !strings.HasPrefix(link, c.LinkPrefix) {
			return nil // no volume of this cloud
		}
		return map[string]string{devicePath: linkDir + link}
	}
	v.handle = func(id, name string) string { return id + "-" + name }
	v.id = func(handle string) string {
		id, _, _ := strings.Cut(handle, "-")
		return id
	}
	v.luksKey = profile.LinodeLUKS
	v.luks = map[string]string{
		profile.LinodeLUKS: "true", profile.LinodeLUKSCipher: profile.LUKSCipher, profile.LinodeLUKSKeySize: profile.LUKSKeySize,
	}
	v.refuses = func(said map[string]string) string {
		switch {
		case said[profile.LinodeLUKS] != "" && said[profile.LinodeLUKS] != "false" && said[profile.LinodeLUKS] != "true":
			// Taken for a volume without, a blank one would hold its data in the clear; its own driver does that.
			return profile.LinodeLUKS + ": neither true nor false, so it is not clear whether the volume is encrypted"
		case said[partition] != "":
			return partition + ": this driver uses whole volumes; the data in a partition is reached by hand"
		}
		return ""
	}
}

// yandex is the driver that clusters of their own use: Flant's, and Deckhouse's after it, under one name. Its node
// program finds a disk by the hash of the disk's id, and does not read the name in the publish context.
func yandex(c profile.Cloud, v *Vendor) {
	volumeName := v.Driver + "/volume-name"
	v.link = func(volume string, attached map[string]string) string {
		if _, told := attached[volumeName]; !told {
			return ""
		}
		return c.LinkPrefix + profile.YandexVendorDevice(volume)
	}
	v.tell = func(link string) map[string]string {
		device := strings.TrimPrefix(link, c.LinkPrefix)
		if device == link || !strings.HasPrefix(device, "csi-") {
			return nil // attached under another name, which its node program would not find
		}
		return map[string]string{volumeName: device}
	}
}
