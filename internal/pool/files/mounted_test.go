package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
)

// C14: a pool is what is mounted at its folder: without a mount nothing is written into it.
func TestOpenNeedsAMountedFilesystem(t *testing.T) {
	dir := t.TempDir()
	const other = "9 1 7:9 / /elsewhere rw - xfs /dev/loop9 rw\n"
	mount := func(root, kind string) string {
		return fmt.Sprintf("10 1 7:1 %s %s rw - %s /dev/loop1 rw\n", root, dir, kind)
	}
	for name, tc := range map[string]struct {
		table   string
		notHere bool
		says    string
	}{
		"nothing":                  {other, true, "no filesystem is mounted at " + dir},
		"a folder of a filesystem": {mount("/var/lib/pool", "ext4"), true, "no filesystem is mounted at " + dir},
		"a folder over a mount":    {mount("/", "xfs") + mount("/var/lib/pool", "ext4"), true, "mount a disk, or a file"},
		"an xfs under a mount":     {mount("/", "xfs"), false, "another mount covers the filesystem at " + dir},
		"memory":                   {mount("/", "tmpfs"), false, "is tmpfs; pools are on xfs or ext4"},
		"btrfs over an xfs":        {mount("/", "xfs") + mount("/", "btrfs"), false, "is btrfs"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := pool.Config{Dir: dir, Node: "n1", MountTable: filepath.Join(t.TempDir(), "mountinfo")}
			must(t, os.WriteFile(cfg.MountTable, []byte(tc.table), 0o600))
			_, err := Open(t.Context(), cfg)
			for what, err := range map[string]error{"Open": err, "Examine": Examine(t.Context(), cfg)} {
				wantReason(t, what, err, fault.PoolUnusable)
				if err == nil || errors.Is(err, pool.ErrNotHere) != tc.notHere || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s = %v, want %q, not here: %t", what, err, tc.says, tc.notHere)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the bare folder holds %v, %v", left, err)
			}
		})
	}
	cfg := configOf(t, filepath.Join(t.TempDir(), "pool"))
	must(t, os.Remove(cfg.Dir))
	_, err := Open(t.Context(), cfg)
	if _, statErr := os.Lstat(cfg.Dir); !errors.Is(err, pool.ErrNotHere) || !errors.Is(statErr, os.ErrNotExist) {
		t.Errorf("Open without a folder = %v, and then it is %v, want none", err, statErr)
	}
}

// C14: an empty disk that is mounted instead of the pool's becomes a pool when the program starts again. It knows
// nothing of the volumes on the other disk, and changes nothing of them.
func TestEmptyDiskInPlaceOfThePool(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pool")
	p := openPool(t, dir)
	r := mustCreate(t, p, "a", small)
	must(t, os.Rename(dir, dir+".other"))
	must(t, os.Mkdir(dir, 0o700))
	wantReason(t, "Delete before a restart", p.Delete(t.Context(), r.ID), fault.PoolUnusable)

	fresh := openPool(t, dir)
	if fresh.id == p.id {
		t.Error("the pools have one id")
	}
	_, err := fresh.Get(t.Context(), r.ID)
	wantKind(t, "Get", err, fault.NotFound)
	wantKind(t, "Delete", fresh.Delete(t.Context(), r.ID), fault.NotFound)

	must(t, os.RemoveAll(dir))
	must(t, os.Rename(dir+".other", dir))
	_, err = fresh.List(t.Context())
	wantReason(t, "List with the pool's own disk, before a restart", err, fault.PoolUnusable)
	if e, err := openPool(t, dir).Get(t.Context(), r.ID); err != nil || e.Kind != pool.Whole {
		t.Errorf("Get with the pool's own disk = %+v, %v", e, err)
	}
}
