package compat

import (
	"path"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

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
