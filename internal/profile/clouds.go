package profile

import (
	"fmt"
	"hash/fnv"
)

// clouds are all clouds, by what --cloud takes.
var clouds = map[string]Cloud{
	"digitalocean": DigitalOcean,
	"linode":       Linode,
	"local":        Local,
	"yandex":       Yandex,
}

// Local is the cloud that is a folder of the node.
var Local = Cloud{Scope: ScopeNode, SnapshotZones: true}

// DigitalOcean names the link of a volume after the volume.
var DigitalOcean = Cloud{
	Scope: ScopeRegion, SnapshotZones: true, LinkPrefix: "scsi-0DO_Volume_", Slots: 15,
	// The second is its name before release 0.3. It is still in clusters of that age: the name of a volume's driver can
	// never be changed.
	Vendors: []Vendor{digitalOceanVendor("dobs.csi.digitalocean.com"), digitalOceanVendor("com.digitalocean.csi.dobs")},
}

func digitalOceanVendor(driver string) Vendor {
	const filesystem = "csi.storage.k8s.io/fstype"
	return Vendor{
		Driver:       driver,
		TopologyKeys: []string{"region=region"},
		NeverFormat:  []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"},
		// The provisioner reads this one itself, in any case, and hands it on, unlike the one with its prefix.
		Parameters: map[string]string{"fstype": filesystem, "fsType": filesystem},
	}
}

const linodeDriver = "linodebs.csi.linode.com"

// The parameters, and attributes of a volume, that ask the vendor's driver for LUKS and say how.
const (
	LinodeLUKS        = linodeDriver + "/luks-encrypted"
	LinodeLUKSCipher  = linodeDriver + "/luks-cipher"
	LinodeLUKSKeySize = linodeDriver + "/luks-key-size"
)

// Linode names the link of a volume after its label. How many volumes a Linode can have depends on its memory.
var Linode = Cloud{
	Scope: ScopeRegion, LinkPrefix: "scsi-0Linode_Volume_",
	Vendors: []Vendor{{
		Driver:       linodeDriver,
		TopologyKeys: []string{"topology.linode.com/region=region"},
		Parameters: map[string]string{
			linodeDriver + "/volumeTags": TagWords,
			linodeDriver + "/encrypted":  "encrypted",
			LinodeLUKS:                   "luks",
			LinodeLUKSCipher:             FixedLUKSCipher,
			LinodeLUKSKeySize:            FixedLUKSKeySize,
		},
	}},
}

// Yandex names the link of a disk after the device name of its attachment. How many disks an instance can have depends on
// its hardware.
var Yandex = Cloud{
	Scope: ScopeZone, LinkPrefix: "virtio-",
	Vendors: []Vendor{{
		Driver:       "yandex.csi.flant.com",
		TopologyKeys: []string{"failure-domain.beta.kubernetes.io/zone=zone", "failure-domain.beta.kubernetes.io/region=region"},
		NeverFormat:  []string{"com.flant.csi.yandex/noformat"},
		Parameters:   map[string]string{"typeID": "type"},
	}},
}

// YandexVendorDevice is the device name under which the vendor's driver attaches the disk with an id.
func YandexVendorDevice(disk string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(disk))
	return fmt.Sprintf("csi-%d", hash.Sum32())
}
