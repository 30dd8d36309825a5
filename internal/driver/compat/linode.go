package compat

import (
	"path"
	"strings"
)

// linode is the vendor's driver of Linode.
func linode() *Vendor {
	const (
		driver     = "linodebs.csi.linode.com"
		linkPrefix = "scsi-0Linode_Volume_" // and then the volume's label, as udev makes it
		linkDir    = "/dev/disk/by-id/"
		devicePath = "devicePath"
		encrypted  = driver + "/luks-encrypted"
		partition  = "partition"
	)
	return &Vendor{
		Driver: driver, Cloud: "linode",
		TopologyKeys: []string{"topology.linode.com/region=region"},
		Parameters: map[string]string{
			driver + "/volumeTags": TagWords,
			driver + "/encrypted":  "encrypted",
			// Without an effect of their own: see refuses.
			encrypted:                 "",
			driver + "/luks-cipher":   "",
			driver + "/luks-key-size": "",
		},
		link: func(_ string, attached map[string]string) string {
			device := attached[devicePath]
			if name, ok := strings.CutPrefix(path.Clean(device), linkDir); device != "" && ok {
				return name
			}
			return device // whole, so that a path elsewhere is seen to be no name
		},
		tell: func(link string) map[string]string {
			if !strings.HasPrefix(link, linkPrefix) {
				return nil // no volume of this cloud
			}
			return map[string]string{devicePath: linkDir + link}
		},
		handle: func(id, name string) string { return id + "-" + name },
		refuses: func(said map[string]string) string {
			switch {
			case said[encrypted] != "" && said[encrypted] != "false":
				// Taken for a volume without, a blank one would hold its data in the clear.
				return encrypted + ": this driver does not open volumes that are encrypted with LUKS yet; leave them to the driver that made them"
			case said[partition] != "":
				return partition + ": this driver uses whole volumes; the data in a partition is reached by hand"
			}
			return ""
		},
	}
}
