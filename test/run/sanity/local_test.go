//go:build e2e

package sanity

import "testing"

func init() {
	filesystem := local("local with filesystems", "mount")
	filesystem.skips = growthOfExt4()
	backends = append(backends, filesystem, local("local with raw block", "block"))
}

// local is the two real programs on a pool.
func local(name, accessType string) backend {
	return backend{
		name: name,
		size: 512 << 20,
		// csi-sanity makes volumes without naming a filesystem, so they are ext4.
		accessType: accessType,
		start: func(t *testing.T, dir string) (controller, node string) {
			return startPrograms(t, dir, nil)
		},
		unsupported: map[string]string{
			"GroupControllerService not supported":              "there are no snapshots of groups",
			"ControllerPublishVolume not supported":             "volumes are on their node already",
			"Controller Publish, UnpublishVolume not supported": "volumes are on their node already",
			"ControllerUnpublishVolume not supported":           "volumes are on their node already",
			"ControllerExpandVolume not supported":              "the node program grows volumes",
			"Modify volume not supported":                       "there is nothing to modify",
			"Modify Volume not supported":                       "there is nothing to modify",
			"ControllerModifyVolume not supported":              "there is nothing to modify",
		},
	}
}
