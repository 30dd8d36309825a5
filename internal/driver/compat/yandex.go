package compat

import (
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

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
