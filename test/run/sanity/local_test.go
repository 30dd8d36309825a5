//go:build e2e

package sanity

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func init() {
	filesystem, block := local("local with filesystems", "mount", ""), local("local with raw block", "block", "")
	filesystem.skips = growthOfExt4()
	reflink := local("local on a pool with reflinks", "block", "xfs")
	backends = append(backends, filesystem, block, reflink)
}

// local is the two real programs on a pool, in a folder of this machine or, if one is named, on a
// filesystem of its own.
func local(name, accessType, filesystem string) backend {
	return backend{
		name: name,
		size: 512 << 20,
		// csi-sanity makes volumes without naming a filesystem, so they are ext4.
		accessType: accessType,
		start: func(t *testing.T, dir string) (controller, node string) {
			if filesystem != "" {
				mountPool(t, dir, filesystem)
			}
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

// mountPool makes a filesystem in a file and mounts it where the pool will be.
func mountPool(t *testing.T, dir, filesystem string) {
	t.Helper()
	cleanAfter(t, dir)
	image, pool := filepath.Join(dir, "disk"), filepath.Join(dir, "pool")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16<<30); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(pool, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs." + filesystem, "-q", image}, {"mount", "-o", "loop", image, pool}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}
