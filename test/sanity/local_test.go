//go:build e2e

package sanity

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

func init() {
	filesystem, block := local("local with filesystems", "mount"), local("local with raw block", "block")
	if !canGrowMountedExt4() {
		filesystem.skips = map[string]string{
			"should work if node-expand is called after node-publish": "this machine's root lacks CAP_SYS_RESOURCE, without which " +
				"the kernel refuses to grow a mounted ext4; it runs with raw block",
		}
	}
	backends = append(backends, filesystem, block)
}

// local is the two real programs on a pool.
func local(name, accessType string) backend {
	return backend{
		name: name,
		size: 512 << 20,
		// csi-sanity makes volumes without naming a filesystem, so they are ext4.
		accessType: accessType,
		start:      startPrograms,
		unsupported: map[string]string{
			"ListSnapshots not supported":                       "there are no snapshots yet",
			"GetSnapshot not supported":                         "there are no snapshots yet",
			"CreateSnapshot not supported":                      "there are no snapshots yet",
			"DeleteSnapshot not supported":                      "there are no snapshots yet",
			"Snapshot not supported":                            "there are no snapshots yet",
			"Volume Cloning not supported":                      "there are no clones yet",
			"GroupControllerService not supported":              "there are no snapshots yet",
			"ControllerPublishVolume not supported":             "volumes are on their node already",
			"Controller Publish, UnpublishVolume not supported": "volumes are on their node already",
			"ControllerUnpublishVolume not supported":           "volumes are on their node already",
			"ControllerExpandVolume not supported":              "the node program grows volumes",
			"Modify volume not supported":                       "there is nothing to modify",
			"Modify Volume not supported":                       "there is nothing to modify",
			"ControllerModifyVolume not supported":              "there is nothing to modify",
			"ControllerGetVolumeHealth not supported":           "health is not reported yet",
			"ControllerListVolumeHealth not supported":          "health is not reported yet",
			"NodeGetVolumeHealth not supported":                 "health is not reported yet",
			"NodeGetStorageHealth not supported":                "health is not reported yet",
		},
	}
}

func startPrograms(t *testing.T, dir string) (controller, node string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	t.Cleanup(func() {
		if err := programs.Clean(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	pair, err := programs.Start(ctx, programs.Options{Bin: *bin, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Stop)
	return "unix://" + pair.Controller.Socket(), "unix://" + pair.Node.Socket()
}

// canGrowMountedExt4 reports whether this process has the capability that the kernel asks for.
func canGrowMountedExt4() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
