//go:build e2e

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud"
	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/local/pool"
)

// disk makes a filesystem of its own for one test and returns where it is mounted.
func disk(t *testing.T, size int64, mkfs ...string) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, size); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{append(mkfs, "-q", image), {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// reflinks reports whether a pool below this folder makes snapshots by reflink.
func reflinks(t *testing.T, below string) bool {
	t.Helper()
	dir, err := os.MkdirTemp(below, "pool-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := pool.Open(t.Context(), pool.Config{Dir: dir, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	return p.Reflink()
}

func TestContractOnEveryFilesystem(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			mountpoint := disk(t, 3<<30, "mkfs."+fs)
			h := harness(func(t *testing.T) string {
				dir, err := os.MkdirTemp(mountpoint, "pool-")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := os.RemoveAll(dir); err != nil {
						t.Error(err)
					}
				})
				return dir
			})
			if !reflinks(t, mountpoint) {
				h.Unfit = h.InUse
			}
			// The filesystem's own records come and go.
			h.CapacitySlack = 8 * cloud.MiB
			runContract(t, h)
		})
	}
}
