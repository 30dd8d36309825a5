//go:build e2e

package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// filesystems are those that a pool can lie on, with the command that makes each.
var filesystems = map[string][]string{
	"ext4": {"mkfs.ext4", "-q", "-F"},
	"xfs":  {"mkfs.xfs", "-q", "-f", "-m", "rmapbt=1"},
}

// mounted mounts a filesystem of its own for one test.
func mounted(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	output(t, slices.Concat([]string{"mount"}, args, []string{dir})...)
	t.Cleanup(func() { must(t, mounts.Unmount(dir)) })
	return dir
}

// inMemory makes a folder in memory for the image of a disk.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "mount", "-t", "tmpfs", "-o", "size=1100m", "none", dir)
	// Lazily: a container that was started meanwhile may have a copy of the mount of the disk.
	t.Cleanup(func() { output(t, "umount", "-l", dir) })
	return dir
}

// realPool is a pool on a small disk of its own, without the test's picture of free space.
func realPool(t *testing.T, fs string) *Pool { return poolBelow(t, fs, t.TempDir()) }

// poolBelow is realPool with the disk's image in this folder.
func poolBelow(t *testing.T, fs, dir string) *Pool {
	t.Helper()
	image := filepath.Join(dir, "disk")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 1<<30))
	output(t, append(filesystems[fs], image)...)
	p, err := Open(t.Context(), pool.Config{Dir: mounted(t, "-o", "loop", image), Node: "n1"})
	must(t, err)
	return p
}

// shareFor returns the size of which exactly n volumes fit.
func shareFor(t *testing.T, p *Pool, n int64) int64 {
	t.Helper()
	free, err := p.Free(t.Context())
	must(t, err)
	size := free * 2 / (2*n + 1) / pool.SizeStep * pool.SizeStep // half a volume is left for the filesystem's own needs
	if size < pool.SmallestVolume {
		t.Fatalf("%d free bytes are too few for %d volumes", free, n)
	}
	return size
}

// L2: 50 creates at once give exactly the 20 volumes that there is room for.
func TestFiftyCreatesAtOnceOnARealDiskWithRoomForTwenty(t *testing.T) {
	for fs := range filesystems {
		t.Run(fs+" four processes", func(t *testing.T) {
			p := realPool(t, fs)
			entries := createInFour(t, p, fmt.Sprintf("%s=%d", sizeEnv, shareFor(t, p, volumesWithRoom)))
			for _, letter := range []byte{'a', 'b'} { // every volume has all its bytes
				for _, e := range entries {
					writeOver(t, p.ImagePath(e.ID), e.Size, letter)
				}
			}
		})
	}
}

// L3: what the pool reports as free can be promised to the last byte, and no more.
func TestCapacityCanBeUsedToTheLastByte(t *testing.T) {
	for fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			p := realPool(t, fs)
			before, err := p.Free(t.Context())
			must(t, err)
			all := before / pool.SizeStep * pool.SizeStep
			r := mustCreate(t, p, "all", all)
			_, err = p.Create(t.Context(), pool.NewVolume{Name: "more", Size: small})
			wantKind(t, "Create in a full pool", err, fault.Exhausted)
			_, err = p.Grow(t.Context(), r.ID, all+small)
			wantKind(t, "Grow in a full pool", err, fault.OutOfRange)
			must(t, p.Reserve(t.Context(), r.ID)) // nothing is missing, so nothing is needed
			must(t, p.Delete(t.Context(), r.ID))
			// The filesystem keeps a little for its own records of what was there.
			if after, err := p.Free(t.Context()); err != nil || before-after > 2*pool.SizeStep {
				t.Errorf("Free = %d, %v, was %d", after, err, before)
			}
		})
	}
}

// The delete of an immutable image is refused, and the pool stays usable.
func TestDeleteRefusesAnImmutableImage(t *testing.T) {
	const immutable = 0x10 // FS_IMMUTABLE_FL
	for fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			p := realPool(t, fs)
			r := mustCreate(t, p, "a", small)
			f, err := os.Open(p.ImagePath(r.ID))
			must(t, err)
			defer func() { _ = f.Close() }()
			flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
			must(t, err)
			must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable))
			wantKind(t, "Delete", p.Delete(t.Context(), r.ID), fault.Precondition)
			if entries, err := p.List(t.Context()); err != nil || len(entries) != 1 || entries[0].Kind != pool.Whole {
				t.Errorf("List = %+v, %v, want the volume", entries, err)
			}
			must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags))
			must(t, p.Delete(t.Context(), r.ID))
		})
	}
}

// The disk reports free space, but the allocation fails: a quota, or a foreign program.
func TestFullDiskTakesTheCreateOrTheGrowthBack(t *testing.T) {
	for fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			p := realPool(t, fs)
			r := mustCreate(t, p, "a", 2*small)
			p.disk.statfs = func(string) (space, error) { return space{1 << 60, 1 << 60}, nil }
			_, err := p.Create(t.Context(), pool.NewVolume{Name: "huge", Size: 100 << 30})
			wantKind(t, "Create", err, fault.Exhausted)
			_, err = p.Grow(t.Context(), r.ID, 100<<30)
			wantKind(t, "Grow", err, fault.OutOfRange)
			entries, err := p.List(t.Context())
			if err != nil || len(entries) != 1 || entries[0].Kind != pool.Whole || entries[0].Size != 2*small || entries[0].Record.GrowTo != 0 || entries[0].Allocated > 3*small {
				t.Errorf("List = %+v, %v, want the one volume as it was", entries, err)
			}
		})
	}
}

func TestFilesystemWithoutReservationIsRefused(t *testing.T) {
	dir := mounted(t, "-t", "ramfs", "none")
	cfg := pool.Config{Dir: dir, Node: "n1", MountTable: filepath.Join(t.TempDir(), "mountinfo")}
	mounts.Write(t, cfg.MountTable, dir) // which says ext4
	_, err := Open(t.Context(), cfg)
	wantKind(t, "Open on ramfs", err, fault.Precondition)
	if err == nil || !strings.Contains(err.Error(), "fallocate") {
		t.Errorf("Open = %v, want the reason in it", err)
	}
}

func TestPoolOnBtrfsIsRefused(t *testing.T) {
	image := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 256<<20))
	output(t, "mkfs.btrfs", "-q", image)
	dir := mounted(t, "-o", "loop", image)
	_, err := Open(t.Context(), pool.Config{Dir: dir, Node: "n1"})
	wantReason(t, "Open on btrfs", err, fault.PoolUnusable)
	wantReason(t, "Examine on btrfs", Examine(t.Context(), pool.Config{Dir: dir, Node: "n1"}), fault.PoolUnusable)
	if err == nil || !strings.Contains(err.Error(), "xfs or ext4") {
		t.Errorf("Open = %v, want what to use instead", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the filesystem holds %v, %v", left, err)
	}
}

// A delete must succeed without free space.
func TestDeleteOnADiskThatIsFullToTheLastByte(t *testing.T) {
	for fs := range filesystems {
		t.Run(fs, func(t *testing.T) {
			p := realPool(t, fs)
			before, err := p.Free(t.Context())
			must(t, err)
			var made []pool.Record
			// Many, so that the folder has hardly a gap left for another name.
			for i := range 21 {
				made = append(made, mustCreate(t, p, strconv.Itoa(i), small))
			}
			foreign := filepath.Join(p.dir, "foreign")
			fillUp(t, foreign)
			for _, r := range made {
				must(t, p.Delete(t.Context(), r.ID))
				wantKind(t, "Delete again", p.Delete(t.Context(), r.ID), fault.NotFound)
			}
			if left := files(t, p); len(left) > 0 {
				t.Errorf("the pool holds %q", left)
			}
			// xfs frees the space of an unlinked file later, in the background.
			must(t, os.Truncate(foreign, 0))
			must(t, os.Remove(foreign))
			if after, err := p.Free(t.Context()); err != nil || before-after > 2*pool.SizeStep {
				t.Errorf("Free = %d, %v, was %d", after, err, before)
			}
		})
	}
}

// fillUp writes a file until the disk has not one byte left.
func fillUp(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	for chunk := 16 << 20; chunk >= 512; {
		_, err := f.Write(make([]byte, chunk))
		if err == nil {
			err = f.Sync()
		}
		if errors.Is(err, unix.ENOSPC) {
			chunk /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
