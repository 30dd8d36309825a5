//go:build e2e

package sanity

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func init() {
	filesystem := local("local with filesystems", "mount")
	filesystem.skips = growthOfExt4()
	backends = append(backends, filesystem, local("local with raw block", "block"))
}

// local is the two real programs on a pool on an xfs of its own.
func local(name, accessType string) backend {
	return backend{
		name: name,
		size: 512 << 20,
		// csi-sanity makes volumes without naming a filesystem, so they are ext4.
		accessType: accessType,
		start: func(t *testing.T, dir string) (controller, node string) {
			mountPool(t, dir)
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

// mountPool makes an xfs in a file and mounts it where the pool will be.
func mountPool(t *testing.T, dir string) {
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
	for _, args := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, pool}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}
