package compat

import (
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
)

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
