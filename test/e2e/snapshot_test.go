//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// hosts are the filesystems a pool can be on: ext4 copies, the others share blocks.
var hosts = []string{"ext4", "xfs", "btrfs"}

// startOn starts both programs on a pool with a disk of its own.
func startOn(t *testing.T, host string, size int64) *programs.Pair {
	t.Helper()
	dir := folder(t)
	return start(t, programs.Options{Dir: dir, Pool: hostDisk(t, dir, host, size)})
}

// write0 fills a file without syncing it, as most programs do.
func write0(t *testing.T, path string, seed byte, size int64) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat(pattern(seed), int(size/mib)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t *testing.T, v *programs.Volume, name string) *programs.Snapshot {
	t.Helper()
	s, err := v.Snapshot(t.Context(), name)
	if err != nil {
		t.Fatalf("snapshot %s of %s: %v", name, v.Name, err)
	}
	return s
}

// TestSnapshotOfAVolumeInUse (failures C9, C10, C11 and F7 of the catalogue): what was written, without a
// sync, before a snapshot or a clone is in it and what came later is not; restored larger the filesystem
// has the larger size; source, restored volume and clone are mounted side by side; nothing is formatted.
func TestSnapshotOfAVolumeInUse(t *testing.T) {
	for _, host := range hosts {
		for _, kind := range []string{"ext4", "xfs", "btrfs"} {
			t.Run("pool on "+host+", volume "+kind, func(t *testing.T) {
				pair := startOn(t, host, 3*gib)
				v := create(t, pair, programs.Claim{Name: "source", Filesystem: kind, Size: 320 * mib})
				must(t, v.Stage, v.Publish)
				write0(t, data(v), 1, 24*mib)
				s := snapshot(t, v, "snap")
				write0(t, data(v), 2, 24*mib)
				clone := create(t, pair, programs.Claim{Name: "clone", Filesystem: kind, Size: 320 * mib, Source: v.Source()})
				write0(t, data(v), 3, 24*mib)
				restored := create(t, pair, programs.Claim{Name: "restored", Filesystem: kind, Size: 640 * mib, Source: s.Source()})

				beside := kind != "btrfs" // btrfs itself refuses two filesystems of one id on one machine
				if !beside {
					must(t, v.Unpublish, v.Unstage)
				}
				for seed, w := range map[byte]*programs.Volume{1: restored, 2: clone} {
					must(t, w.Stage, w.Publish)
					wantBytes(t, data(w), seed, 24*mib)
					if got := filesystemSize(t, w.Target); got < w.Size*8/10 {
						t.Errorf("%s: the filesystem has %d bytes, want nearly %d", w.Name, got, w.Size)
					}
					write(t, data(w), 9, 24*mib) // which must change no other
					if !beside {
						must(t, w.Unpublish, w.Unstage)
					}
				}
				if !beside {
					must(t, v.Stage, v.Publish)
				}
				wantBytes(t, data(v), 3, 24*mib)
				must(t, v.Unpublish, v.Unstage, v.Delete) // a snapshot needs its volume no more
				late := create(t, pair, programs.Claim{Name: "late", Filesystem: kind, Size: 320 * mib, Source: s.Source()})
				if beside {
					must(t, restored.Unpublish, restored.Unstage, clone.Unpublish, clone.Unstage)
				}
				must(t, late.Stage, late.Publish)
				wantBytes(t, data(late), 1, 24*mib)
				must(t, late.Unpublish, late.Unstage, late.Delete, restored.Delete, clone.Delete, s.Delete, s.Delete)
				wantEmptyPool(t, pair)
			})
		}
	}
}

// TestCloneThatLooksEmptyIsNotFormatted (failure F7 of the catalogue): the filesystem of a clone that
// cannot be recognised leads to a refusal, never to mkfs.
func TestCloneThatLooksEmptyIsNotFormatted(t *testing.T) {
	pair := start(t, programs.Options{})
	v := create(t, pair, programs.Claim{Name: "blank", Filesystem: "xfs", Size: 320 * mib})
	clone := create(t, pair, programs.Claim{Name: "clone", Filesystem: "xfs", Size: 320 * mib, Source: v.Source()})
	wantCode(t, "stage of a clone of a volume that never had a filesystem", clone.Stage(t.Context()), codes.FailedPrecondition)
	must(t, v.Stage, v.Publish, v.Unpublish, v.Unstage, clone.Unstage, clone.Delete, v.Delete)
}

// TestRawBlockSnapshots: a raw block volume in use cannot be frozen, so it is copied only by sharing blocks.
func TestRawBlockSnapshots(t *testing.T) {
	for host, want := range map[string]codes.Code{"ext4": codes.FailedPrecondition, "xfs": codes.OK} {
		t.Run("pool on "+host, func(t *testing.T) {
			pair := startOn(t, host, gib)
			v := create(t, pair, programs.Claim{Name: "raw", Size: 64 * mib})
			must(t, v.Stage, v.Publish)
			write(t, data(v), 1, 16*mib)
			s, err := v.Snapshot(t.Context(), "in use")
			wantCode(t, "snapshot of a raw block volume in use", err, want)
			must(t, v.Unpublish, v.Unstage)
			if err != nil {
				s = snapshot(t, v, "in use")
			}
			restored := create(t, pair, programs.Claim{Name: "restored", Size: 128 * mib, Source: s.Source()})
			must(t, restored.Stage, restored.Publish)
			wantBytes(t, data(restored), 1, 16*mib)
			must(t, restored.Unpublish, restored.Unstage, restored.Delete, s.Delete, v.Delete)
			wantEmptyPool(t, pair)
		})
	}
}

// TestGroupIsOfOneInstant: two volumes get the same numbers one after the other; in the snapshots of a
// group the second never is ahead of the first, and never more than one behind.
func TestGroupIsOfOneInstant(t *testing.T) {
	pair := startOn(t, "xfs", 3*gib)
	var volumes []*programs.Volume
	for _, kind := range []string{"ext4", "xfs"} {
		v := create(t, pair, programs.Claim{Name: "member-" + kind, Filesystem: kind, Size: 320 * mib})
		must(t, v.Stage, v.Publish)
		volumes = append(volumes, v)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- count(stop, volumes) }()
	for i := range 3 {
		eventually(t, "both have a number", func() bool { return numberIn(volumes[1].Target) > int64(i) })
		g, err := pair.SnapshotGroup(t.Context(), name("group-", i), volumes...)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int64, len(volumes))
		for j, s := range g.Snapshots {
			at := slices.IndexFunc(volumes, func(v *programs.Volume) bool { return v.ID == s.SourceVolume })
			source := volumes[at]
			w := create(t, pair, programs.Claim{Name: name("of-group-", i, j), Filesystem: source.Filesystem, Size: 320 * mib, Source: s.Source()})
			must(t, w.Stage, w.Publish)
			got[at] = numberIn(w.Target)
			must(t, w.Unpublish, w.Unstage, w.Delete)
		}
		if got[1] == 0 || got[0]-got[1] < 0 || got[0]-got[1] > 1 {
			t.Errorf("the members of one group hold the numbers %v, want the same or one less in the second", got)
		}
		must(t, g.Delete, g.Delete)
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for _, v := range volumes {
		must(t, v.Unpublish, v.Unstage, v.Delete)
	}
	wantEmptyPool(t, pair)
}

// count writes one number after the other, each into the first volume and then into the second.
func count(stop <-chan struct{}, volumes []*programs.Volume) error {
	for n := 1; ; n++ {
		for _, v := range volumes {
			select {
			case <-stop:
				return nil
			default:
			}
			// One byte per number: the length is the number, and an append is never half there.
			f, err := os.OpenFile(filepath.Join(v.Target, "numbers"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return err
			}
			if _, err = fmt.Fprint(f, "."); err == nil {
				err = unix.Fdatasync(int(f.Fd()))
			}
			f.Close()
			if err != nil {
				return err
			}
		}
	}
}

func numberIn(dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, "numbers"))
	if err != nil {
		return 0
	}
	return info.Size()
}
