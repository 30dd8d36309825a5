//go:build e2e

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

func TestMain(m *testing.M) { loops.Main(m) }

// disk makes a filesystem for one test and returns its mount point.
func disk(t *testing.T, size int64, mkfs ...string) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, dir, size, mkfs...)
	return dir
}

// mount makes a filesystem and mounts it for one test.
func mount(t *testing.T, dir string, size int64, mkfs ...string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, size))
	command(t, append(mkfs, "-q", image)...)
	command(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() {
		// Lazily: a case may still have an image open.
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
}

// command runs a command, which must succeed.
func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// slack is the space that a filesystem allocates and frees by itself, for its inodes and its log. A volume is larger.
const slack = 8 * cloud.MiB

func TestContractOnEveryFilesystem(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			if testing.Short() && fs != "xfs" {
				t.Skip("-short runs xfs alone; make e2e without SHORT=1 runs ext4 too")
			}
			h := harness(func(t *testing.T) string { return disk(t, 3<<30, "mkfs."+fs) })
			if fs != "xfs" {
				h = noCopies(h)
			}
			h.CapacitySlack = slack
			runContract(t, h)
		})
	}
}
