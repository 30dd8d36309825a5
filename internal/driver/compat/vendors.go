package compat

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

// vendors are all vendors of all clouds.
var vendors = complete(map[string]func(profile.Cloud, *Vendor){"digitalocean": digitalOcean, "linode": linode, "yandex": yandex})

// complete adds to the vendors of the profiles how each encodes and decodes contexts.
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

// Of returns the vendor whose driver has this name; nil if there is none.
func Of(driver string) *Vendor {
	if i := slices.IndexFunc(vendors, func(v *Vendor) bool { return v.Driver == driver }); i >= 0 {
		return vendors[i]
	}
	return nil
}

// digitalOcean: the vendor's node program takes the volume's name, which is the end of the link, from the publish context.
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
			return nil // not a volume of this cloud
		}
		return map[string]string{volumeName: name}
	}
}

// linodeHandle matches a handle of Linode's driver: the volume's id, and the label that the volume had when it was created.
var linodeHandle = regexp.MustCompile(`^([1-9][0-9]{0,17})-[0-9A-Za-z_-]{0,32}$`)

// linode: the vendor's node program takes the path of the link, which ends with the volume's label, from the publish context.
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
		return device // unchanged, so that the path of another folder is refused as a name
	}
	v.tell = func(link string) map[string]string {
		if !strings.HasPrefix(link, c.LinkPrefix) {
			return nil // not a volume of this cloud
		}
		return map[string]string{devicePath: linkDir + link}
	}
	v.handle = func(id, name string) string { return id + "-" + name }
	v.id = func(handle string) string {
		if parts := linodeHandle.FindStringSubmatch(handle); parts != nil {
			return parts[1]
		}
		return handle // which is the id, or that of no volume
	}
	v.luksKey = profile.LinodeLUKS
	v.luks = map[string]string{
		profile.LinodeLUKS: "true", profile.LinodeLUKSCipher: profile.LUKSCipher, profile.LinodeLUKSKeySize: profile.LUKSKeySize,
	}
	v.refuses = func(said map[string]string) string {
		switch {
		case said[profile.LinodeLUKS] != "" && said[profile.LinodeLUKS] != "false" && said[profile.LinodeLUKS] != "true":
			// If it counted as unencrypted, a blank volume would store its data in plain text, as with the vendor's driver.
			return profile.LinodeLUKS + ": neither true nor false, so it is not clear whether the volume is encrypted"
		case said[partition] != "":
			return partition + ": this driver uses whole volumes; the data in a partition is reached by hand"
		}
		return ""
	}
}

// yandex is the driver of self-managed clusters: Flant's, and later Deckhouse's, with the same name. Its node program finds a disk
// by the hash of the disk's id, and does not read the name in the publish context.
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
			return nil // attached with another device name, which the vendor's node program would not find
		}
		return map[string]string{volumeName: device}
	}
}
