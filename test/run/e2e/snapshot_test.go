//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// startOn starts both programs on a pool with a disk of its own.
func startOn(t *testing.T, host string, size int64) *programs.Pair {
	t.Helper()
	dir := folder(t)
	return start(t, programs.Options{Dir: dir, Pool: hostDisk(t, dir, host, size)})
}

func snapshot(t *testing.T, v *programs.Volume, name string) *programs.Snapshot {
	t.Helper()
	s, err := v.Snapshot(t.Context(), name)
	if err != nil {
		t.Fatalf("snapshot %s of %s: %v", name, v.Name, err)
	}
	return s
}

// F7, C9, C10, C11: what a pod has synced before a snapshot or a clone is in it, what came later is not, and the
// filesystem is whole, whatever was still to be written; restored larger it has the larger size; source, restored volume
// and clone are mounted side by side; nothing is formatted.
func TestSnapshotOfAVolumeInUse(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			pair := startOn(t, "xfs", 3*gib)
			v := create(t, pair, programs.Claim{Name: "source", Filesystem: kind, Size: 320 * mib})
			must(t, v.Stage, v.Publish)
			write(t, data(v), 1, 24*mib)
			stop := keepWriting(t, filepath.Join(v.Target, "unsynced"))
			s := snapshot(t, v, "snap")
			write(t, data(v), 2, 24*mib)
			clone := create(t, pair, programs.Claim{Name: "clone", Filesystem: kind, Size: 320 * mib, Source: v.Source()})
			stop()
			write(t, data(v), 3, 24*mib)
			restored := create(t, pair, programs.Claim{Name: "restored", Filesystem: kind, Size: 640 * mib, Source: s.Source()})
			for seed, w := range map[byte]*programs.Volume{1: restored, 2: clone} {
				must(t, w.Stage, w.Publish)
				wantBytes(t, data(w), seed, 24*mib)
				if got := filesystemSize(t, w.Target); got < w.Size*8/10 && (w == clone || seesGrowth(t, kind)) {
					t.Errorf("%s: the filesystem has %d bytes, want nearly %d", w.Name, got, w.Size)
				}
				write(t, data(w), 9, 24*mib) // which must change no other
			}
			wantBytes(t, data(v), 3, 24*mib)
			must(t, v.Unpublish, v.Unstage, v.Delete) // a snapshot needs its volume no more
			late := create(t, pair, programs.Claim{Name: "late", Filesystem: kind, Size: 320 * mib, Source: s.Source()})
			must(t, restored.Unpublish, restored.Unstage, clone.Unpublish, clone.Unstage)
			must(t, late.Stage, late.Publish)
			wantBytes(t, data(late), 1, 24*mib)
			must(t, late.Unpublish, late.Unstage)
			for _, w := range []*programs.Volume{restored, clone, late} {
				wantWhole(t, pair, w)
			}
			must(t, late.Delete, restored.Delete, clone.Delete, s.Delete, s.Delete)
			wantEmptyPool(t, pair)
		})
	}
}

// keepWriting overwrites and extends a file without syncing it until stop is called.
func keepWriting(t *testing.T, path string) (stop func()) {
	t.Helper()
	f, err := os.Create(path)
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := f.WriteAt(pattern(byte(n)), int64(n%32)*mib/2); err != nil {
				t.Errorf("write %s: %v", path, err)
				return
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		f.Close()
	})
	t.Cleanup(stop)
	return stop
}

// wantWhole checks the filesystem of a volume that is not staged, and changes nothing.
func wantWhole(t *testing.T, pair *programs.Pair, v *programs.Volume) {
	t.Helper()
	check := map[string][]string{
		"ext4": {"e2fsck", "-fn"}, "xfs": {"xfs_repair", "-n", "-f"},
	}[v.Filesystem]
	image := filepath.Join(pair.Pool(), "volumes", path.Base(v.ID)+".img")
	out, err := exec.CommandContext(t.Context(), check[0], append(check[1:], image)...).CombinedOutput()
	if err != nil {
		t.Errorf("the filesystem of %s is damaged: %v: %s", v.Name, err, out)
	}
}

// TestSnapshotWithoutReflinks: a pool on ext4 keeps volumes and refuses a snapshot and a clone, with what to use instead.
func TestSnapshotWithoutReflinks(t *testing.T) {
	t.Parallel()
	pair := startOn(t, "ext4", 3*gib)
	v := create(t, pair, programs.Claim{Name: "source", Filesystem: "ext4", Size: 320 * mib})
	_, snapshot := v.Snapshot(t.Context(), "snap")
	_, clone := pair.Create(t.Context(), programs.Claim{Name: "clone", Filesystem: "ext4", Size: 320 * mib, Source: v.Source()})
	for what, err := range map[string]error{"snapshot": snapshot, "clone": clone} {
		wantCode(t, what+" in a pool without reflinks", err, codes.InvalidArgument)
		if !strings.Contains(fmt.Sprint(err), "pool on an xfs") {
			t.Errorf("%s = %v, want what to use instead", what, err)
		}
	}
	must(t, v.Delete)
	wantEmptyPool(t, pair)
}

// F7: a clone with content that is no known filesystem leads to a refusal, never to mkfs. A clone of a volume that was
// never written is blank.
func TestCloneThatLooksEmptyIsNotFormatted(t *testing.T) {
	t.Parallel()
	pair := startOn(t, "xfs", 3*gib)
	v := create(t, pair, programs.Claim{Name: "raw", Size: 320 * mib})
	clone := create(t, pair, programs.Claim{Name: "clone of nothing", Filesystem: "xfs", Size: 320 * mib, Source: v.Source()})
	must(t, clone.Stage, clone.Publish, clone.Unpublish, clone.Unstage, clone.Delete)
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, mib)
	must(t, v.Unpublish, v.Unstage)
	clone = create(t, pair, programs.Claim{Name: "clone of something", Filesystem: "xfs", Size: 320 * mib, Source: v.Source()})
	wantCode(t, "stage of a clone whose content is no filesystem", clone.Stage(t.Context()), codes.FailedPrecondition)
	must(t, clone.Unstage, clone.Delete, v.Delete)
}

// C11: what was synced to a raw block volume in use is in its snapshot.
func TestRawBlockSnapshot(t *testing.T) {
	t.Parallel()
	pair := startOn(t, "xfs", gib)
	v := create(t, pair, programs.Claim{Name: "raw", Size: 64 * mib})
	must(t, v.Stage, v.Publish)
	write(t, data(v), 1, 16*mib)
	s := snapshot(t, v, "in use")
	write(t, data(v), 2, 16*mib)
	restored := create(t, pair, programs.Claim{Name: "restored", Size: 128 * mib, Source: s.Source()})
	must(t, restored.Stage, restored.Publish)
	wantBytes(t, data(restored), 1, 16*mib)
	must(t, restored.Unpublish, restored.Unstage, restored.Delete, s.Delete, v.Unpublish, v.Unstage, v.Delete)
	wantEmptyPool(t, pair)
}
