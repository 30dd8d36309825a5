package compat

import "strings"

// digitalOcean is the vendor's driver of DigitalOcean under one of its names.
func digitalOcean(driver string) *Vendor {
	const linkPrefix = "scsi-0DO_Volume_" // and then the volume's name, as udev makes it
	volumeName := driver + "/volume-name"
	return &Vendor{
		Driver: driver, Cloud: "digitalocean",
		TopologyKeys: []string{"region=region"},
		NeverFormat:  []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"},
		// The provisioner reads this one itself, in any case, and hands it on, unlike the one with its prefix.
		Parameters: map[string]string{"fstype": filesystem, "fsType": filesystem},
		link: func(_ string, attached map[string]string) string {
			if name := attached[volumeName]; name != "" {
				return linkPrefix + name
			}
			return ""
		},
		tell: func(link string) map[string]string {
			name, ok := strings.CutPrefix(link, linkPrefix)
			if !ok {
				return nil // no volume of this cloud
			}
			return map[string]string{volumeName: name}
		},
	}
}

// filesystem is the parameter of Kubernetes that names the filesystem.
const filesystem = "csi.storage.k8s.io/fstype"
