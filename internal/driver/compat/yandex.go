package compat

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// yandex is the driver of Yandex Cloud that clusters of their own use: Flant's, and Deckhouse's after it, under
// one name.
func yandex() *Vendor {
	const (
		driver     = "yandex.csi.flant.com"
		linkPrefix = "virtio-csi-" // and then the hash of the disk's id, in decimal
		volumeName = driver + "/volume-name"
	)
	return &Vendor{
		Driver: driver, Cloud: "yandex",
		TopologyKeys: []string{"failure-domain.beta.kubernetes.io/zone=zone", "failure-domain.beta.kubernetes.io/region=region"},
		NeverFormat:  []string{"com.flant.csi.yandex/noformat"},
		Parameters:   map[string]string{"typeID": "type"},
		link: func(volume string, attached map[string]string) string {
			if _, told := attached[volumeName]; !told {
				return ""
			}
			hash := fnv.New32a()
			_, _ = hash.Write([]byte(volume))
			return fmt.Sprintf("%s%d", linkPrefix, hash.Sum32())
		},
		tell: func(link string) map[string]string {
			if !strings.HasPrefix(link, linkPrefix) {
				return nil // attached under another name, which its node program would not find
			}
			return map[string]string{volumeName: strings.TrimPrefix(link, "virtio-")} // it finds the disk by the volume's id
		},
	}
}
