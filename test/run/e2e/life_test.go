//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// TestLife takes a volume of each kind through its life on each cloud, every call made twice, as callers
// of CSI do.
func TestLife(t *testing.T) {
	t.Parallel()
	for _, where := range []place{onPool("xfs"), onDigitalOcean, onLinode, onYandex} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			w := where.start(t)
			for _, kind := range kinds {
				t.Run(kindName(kind), func(t *testing.T) { liveOnce(t, w, where, kind) })
			}
		})
	}
}

func liveOnce(t *testing.T, w world, where place, kind string) {
	v := create(t, w.Pair, programs.Claim{Name: "life-" + kindName(kind), Filesystem: kind, Size: where.size})
	if again := create(t, w.Pair, v.Claim); again.ID != v.ID || again.Size != v.Size {
		t.Fatalf("the same request made %s, then %s", v.ID, again.ID)
	}
	must(t, v.Attach, v.Attach, v.Stage, v.Stage, v.Publish, v.Publish)
	write(t, data(v), 1, 32*mib)

	_, err := v.Expand(t.Context(), where.grown)
	switch {
	case where.grows(t, kind):
		wantCode(t, "growing", err, codes.OK)
		wantCode(t, "growing again", second(v.Expand(t.Context(), where.grown)), codes.OK)
		wantCode(t, "growing to less", second(v.Expand(t.Context(), where.size)), codes.OK)
	default:
		wantCode(t, "growing what cannot grow in use", err, codes.FailedPrecondition)
		if !where.growsInUse && !strings.Contains(fmt.Sprint(err), "VolumeAttachment") {
			t.Errorf("the advice is %v, want it to say what has to go first", err)
		}
	}
	wantBytes(t, data(v), 1, 32*mib)
	wantCode(t, "deleting a volume in use", v.Delete(t.Context()), codes.FailedPrecondition)

	must(t, v.Unpublish, v.Unpublish, v.Unstage, v.Unstage, v.Detach, v.Detach, v.Attach, v.Stage, v.Publish)
	wantBytes(t, data(v), 1, 32*mib)
	size := where.size
	if seesGrowth(t, kind) {
		size = where.grown
	}
	usage, err := v.Stats(t.Context())
	if err != nil || usage[csi.VolumeUsage_BYTES].GetTotal() < size*85/100 {
		t.Errorf("stats = %v (%v), want nearly %d", usage, err, size)
	}
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete, v.Delete)
	w.wantNothingLeft(t)
}

func second[T any](_ T, err error) error { return err }

// TestReboot: after a reboot there is no mount and no loop device, but the files are there.
func TestReboot(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	pair := start(t, programs.Options{Dir: dir})
	for i, kind := range kinds {
		v := create(t, pair, programs.Claim{Name: "reboot-" + kindName(kind), Filesystem: kind, Size: 320 * mib})
		must(t, v.Stage, v.Publish)
		write(t, data(v), byte(i), 16*mib)
		pair.Node.Kill()
		pair.Controller.Kill()
		unmountAll(t, v)
		detachLoops(t, pair.Pool())
		must(t, pair.Controller.Start, pair.Node.Start, v.Stage, v.Publish)
		wantBytes(t, data(v), byte(i), 16*mib)
		must(t, v.Unpublish, v.Unstage, v.Delete)
	}
	wantEmptyPool(t, pair)
}

// unmountAll ends a volume's mounts as a shutdown does; not all of the paths are mounts. A process that another test
// forks has our open files until its exec, and keeps a mount busy.
func unmountAll(t *testing.T, v *programs.Volume) {
	t.Helper()
	for _, path := range []string{v.Target, v.Staging, v.Staging + "/device"} {
		eventually(t, "the mount at "+path+" ends", func() bool { return !errors.Is(unix.Unmount(path, 0), unix.EBUSY) })
	}
}

// detachLoops does what a shutdown does to the loop devices of the pool.
func detachLoops(t *testing.T, pool string) {
	t.Helper()
	for _, loop := range loops.Below(pool) {
		noError(t, loops.Detach(loop))
	}
	if left := loops.Below(pool); len(left) > 0 {
		t.Fatalf("loop devices %v are still there", left)
	}
}

// L6: what is promised is reserved, so a host disk that is full to the last byte does not harm volumes that have room,
// whatever the pool's filesystem.
func TestHostDiskFull(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"ext4", "xfs"} {
		t.Run("pool on "+host, func(t *testing.T) {
			if testing.Short() && host != "xfs" {
				t.Skip("one filesystem with -short")
			}
			t.Parallel()
			dir := folder(t)
			pool := hostDisk(t, dir, host, 2*gib)
			pair := start(t, programs.Options{Dir: dir, Pool: pool})
			v := create(t, pair, programs.Claim{Name: "promised", Filesystem: "ext4", Size: 512 * mib})
			must(t, v.Stage, v.Publish)
			fillUp(t, pool+"/foreign")
			_, err := pair.Create(t.Context(), programs.Claim{Name: "late", Filesystem: "ext4", Size: 64 * mib})
			wantCode(t, "create in a full pool", err, codes.ResourceExhausted)
			for i := range byte(3) { // overwriting must not need new room either
				write(t, data(v), i, 400*mib)
				wantBytes(t, data(v), i, 400*mib)
			}
			must(t, v.Unpublish, v.Unstage, v.Stage, v.Publish)
			wantBytes(t, data(v), 2, 400*mib)
			must(t, v.Unpublish, v.Unstage, v.Delete)
		})
	}
}

// L2: 50 creates at once on a pool with room for 20 give exactly 20.
func TestAdmission(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	pool := hostDisk(t, dir, "ext4", 2*gib)
	pair := start(t, programs.Options{Dir: dir, Pool: pool})
	free := capacity(t, pair)
	size := (free / 20) / mib * mib
	if size*21 <= free {
		t.Fatalf("a pool of %d bytes has room for more than 20 of %d", free, size)
	}
	var made sync.Map
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			v, err := pair.Create(t.Context(), programs.Claim{Name: name("admission-", i), Size: size})
			if err == nil {
				made.Store(v.ID, v)
				return
			}
			wantCode(t, "create beyond the pool's room", err, codes.ResourceExhausted)
		})
	}
	wg.Wait()
	count := 0
	made.Range(func(_, v any) bool {
		count++
		must(t, v.(*programs.Volume).Delete)
		return true
	})
	if count != 20 {
		t.Errorf("%d creates succeeded, want exactly 20", count)
	}
	wantEmptyPool(t, pair)
	if after := capacity(t, pair); after < free-slack {
		t.Errorf("the pool has room for %d bytes after everything is deleted, want nearly %d as before", after, free)
	}
}

// slack is what a filesystem needs and gives back by itself, for its inodes and its log. A volume is larger.
const slack = 8 * mib

func capacity(t *testing.T, pair *programs.Pair) int64 {
	t.Helper()
	answer, err := csi.NewControllerClient(pair.Controller.Conn).GetCapacity(t.Context(), &csi.GetCapacityRequest{})
	noError(t, err)
	return answer.GetAvailableCapacity()
}

// TestParallelLives: different volumes do not wait for each other or get in each other's way.
func TestParallelLives(t *testing.T) {
	t.Parallel()
	pair := start(t, programs.Options{})
	t.Run("lives", func(t *testing.T) {
		for i, kind := range append(kinds, kinds...) {
			t.Run(name(i, "-", kindName(kind)), func(t *testing.T) {
				t.Parallel()
				v := create(t, pair, programs.Claim{Name: name("parallel-", i), Filesystem: kind, Size: 320 * mib})
				for range 3 {
					must(t, v.Stage, v.Publish)
					write(t, data(v), byte(i), 8*mib)
					must(t, v.Unpublish, v.Unstage)
				}
				must(t, v.Stage, v.Publish)
				wantBytes(t, data(v), byte(i), 8*mib)
				must(t, v.Unpublish, v.Unstage, v.Delete)
			})
		}
	})
	wantEmptyPool(t, pair)
}
