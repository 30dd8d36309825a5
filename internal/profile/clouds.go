package profile

import (
	"fmt"
	"hash/fnv"
	"maps"
)

// clouds has all clouds by the value of --cloud.
var clouds = map[string]Cloud{
	"digitalocean": DigitalOcean,
	"linode":       Linode,
	"local":        Local,
	"yandex":       Yandex,
}

// Local is the cloud of the pools on a node.
var Local = Cloud{Scope: ScopeNode, SnapshotZones: true, SnapshotBlocks: true}

// DigitalOcean names the link of a volume after the volume.
var DigitalOcean = Cloud{
	Scope: ScopeRegion, SnapshotZones: true, LinkPrefix: "scsi-0DO_Volume_", Slots: 15,
	// The second is the driver's name before release 0.3. Old clusters still use it, because the driver name of a volume can never
	// change.
	Vendors: []Vendor{digitalOceanVendor("dobs.csi.digitalocean.com"), digitalOceanVendor("com.digitalocean.csi.dobs")},
}

func digitalOceanVendor(driver string) Vendor {
	return Vendor{
		Driver:       driver,
		TopologyKeys: []string{"region=region"},
		NeverFormat:  []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"},
		Parameters:   withFilesystem(nil),
	}
}

// withFilesystem returns a vendor's parameters and that of the filesystem, which is no vendor's own: the provisioner reads it itself,
// in upper or lower case, and passes it on, unlike the one with its prefix.
func withFilesystem(own map[string]string) map[string]string {
	const filesystem = "csi.storage.k8s.io/fstype"
	all := map[string]string{"fstype": filesystem, "fsType": filesystem}
	maps.Copy(all, own)
	return all
}

const linodeDriver = "linodebs.csi.linode.com"

// The parameters of the vendor's driver for LUKS, which are also attributes of its volumes.
const (
	LinodeLUKS        = linodeDriver + "/luks-encrypted"
	LinodeLUKSCipher  = linodeDriver + "/luks-cipher"
	LinodeLUKSKeySize = linodeDriver + "/luks-key-size"
)

// Linode names the link of a volume after its label. The attach limit of a Linode depends on its memory.
var Linode = Cloud{
	Scope: ScopeRegion, LinkPrefix: "scsi-0Linode_Volume_",
	Vendors: []Vendor{{
		Driver:       linodeDriver,
		TopologyKeys: []string{"topology.linode.com/region=region"},
		Parameters: withFilesystem(map[string]string{
			linodeDriver + "/volumeTags": TagWords,
			linodeDriver + "/encrypted":  "encrypted",
			LinodeLUKS:                   "luks",
			LinodeLUKSCipher:             FixedLUKSCipher,
			LinodeLUKSKeySize:            FixedLUKSKeySize,
		}),
	}},
}

// Yandex names the link of a disk after the device name of its attachment. The attach limit of an instance depends on its hardware.
var Yandex = Cloud{
	Scope: ScopeZone, LinkPrefix: "virtio-",
	Vendors: []Vendor{{
		Driver:       "yandex.csi.flant.com",
		TopologyKeys: []string{"failure-domain.beta.kubernetes.io/zone=zone", "failure-domain.beta.kubernetes.io/region=region"},
		NeverFormat:  []string{"com.flant.csi.yandex/noformat"},
		Parameters:   withFilesystem(map[string]string{"typeID": "type"}),
	}},
}

// YandexVendorDevice returns the device name with which the vendor's driver attaches the disk.
func YandexVendorDevice(disk string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(disk))
	return fmt.Sprintf("csi-%d", hash.Sum32())
}
