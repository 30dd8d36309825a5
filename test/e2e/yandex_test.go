//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/faults"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/programs"
)

// growMark is the label that keeps a wish to grow.
const growMark = "cloudblock-grow"

// marked reports whether a disk waits for its growth.
func marked(account *yandex.Cloud, id string) bool {
	d, _ := account.Disk(id)
	_, is := d.Labels[growMark]
	return is
}

// wantDisk checks a disk's size, and whether it waits for another one.
func wantDisk(t *testing.T, account *yandex.Cloud, id string, size int64, waits bool) {
	t.Helper()
	if d, _ := account.Disk(id); d.Size != size || marked(account, id) != waits {
		t.Errorf("the disk has %d bytes, waits to grow: %v; want %d and %v", d.Size, marked(account, id), size, waits)
	}
}

// TestGrowthInUseOnYandex: the cloud of today grows a disk that a pod has.
func TestGrowthInUseOnYandex(t *testing.T) {
	t.Parallel()
	w, account := startYandex(t, yandex.Options{})
	v := create(t, w.Pair, programs.Claim{Name: "grows", Filesystem: "xfs", Size: gib})
	must(t, v.Attach, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	wantCode(t, "growing in use", second(v.Expand(t.Context(), 2*gib)), codes.OK)
	if got := filesystemSize(t, v.Target); got < 2*gib*85/100 {
		t.Errorf("the pod sees %d bytes, want nearly 2 GiB", got)
	}
	wantDisk(t, account, v.ID, 2*gib, false)
	wantBytes(t, data(v), 1, 8*mib)
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete)
	w.wantNothingLeft(t)
}

// TestGrowthThatYandexRefuses (failures E4 and A10 of the catalogue): where a disk cannot grow while it is
// attached the wish waits on the disk, through restarts of the pod and of the controller, and costs the pod
// what the cloud takes to detach, grow and attach, and at most a tenth of that.
//
// A controller that is killed is started again by the test at once. The time until it serves is within that tenth.
func TestGrowthThatYandexRefuses(t *testing.T) {
	for dies, kind := range map[string]string{never: "btrfs", afterMark: "xfs", afterDetach: "btrfs", afterGrowth: "xfs"} {
		t.Run(kindName(kind)+", the controller dies "+dies, func(t *testing.T) {
			t.Parallel()
			took := awayToGrow(t, kind, dies)
			t.Logf("away for %s: %.3f of the %s that the cloud took; a restart was %s of it",
				took.away, float64(took.away)/float64(took.cloud), took.cloud, took.restart)
			if bar := took.cloud * 110 / 100; took.cloud < 3*cloudTakes || took.away > bar {
				t.Errorf("the volume was away for %s, want at most %s", took.away, bar)
			}
		})
	}
}

// When the controller dies.
const (
	never       = "never"
	afterMark   = "after the mark"
	afterDetach = "after the detach"
	afterGrowth = "after the growth"
)

// cloudTakes is how long the cloud takes for each change.
const cloudTakes = 4 * time.Second

// absence is how long a volume was away, what of it its detach, growth and attach took the cloud, and how long
// there was no controller.
type absence struct{ away, cloud, restart time.Duration }

// awayToGrow lets a pod's volume grow where the cloud refuses that in use.
func awayToGrow(t *testing.T, kind, dies string) (took absence) {
	w, account := startYandex(t, yandex.Options{Rules: yandex.Rules{ResizeRefused: true}})
	account.SetDurations(yandex.Each(clock.Fixed(cloudTakes)))
	kill := func(moment string) (restart time.Duration) {
		if dies == moment {
			killed := time.Now()
			w.Controller.Kill()
			must(t, w.Controller.Start)
			restart = time.Since(killed)
		}
		return restart
	}
	v := create(t, w.Pair, programs.Claim{Name: "stubborn", Filesystem: kind, Size: gib})
	// From another volume the controller learns how long the cloud takes, until it dies.
	other := create(t, w.Pair, programs.Claim{Name: "other", Filesystem: kind, Size: gib})
	must(t, other.Attach, other.Detach, func(ctx context.Context) error {
		return second(csi.NewControllerClient(w.Controller.Conn).ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: other.ID, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib},
		}))
	})

	must(t, v.Attach, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	wantCode(t, "growing in use", second(v.Expand(t.Context(), 2*gib)), codes.FailedPrecondition)
	kill(afterMark)
	// The pod starts again on this machine: the disk stays attached and goes on waiting.
	must(t, v.Unpublish, v.Unstage, v.Attach, v.Stage, v.Publish)
	wantBytes(t, data(v), 1, 8*mib)
	wantDisk(t, account, v.ID, gib, true)

	must(t, v.Unpublish, v.Unstage)
	left := time.Now()
	must(t, v.Detach)
	took.restart = kill(afterDetach)
	if dies == afterGrowth {
		eventually(t, "the disk grows", func() bool {
			d, _ := account.Disk(v.ID)
			return d.Size == 2*gib
		})
	}
	took.restart += kill(afterGrowth)
	must(t, v.Attach)
	took.away = time.Since(left)
	for _, op := range account.Operations() {
		if op.Disk == v.ID && !op.Accepted.Before(left) {
			took.cloud += op.Finished.Sub(op.Accepted)
		}
	}

	must(t, v.Stage, v.Publish)
	if got := filesystemSize(t, v.Target); got < 2*gib*85/100 && seesGrowth(t, kind) {
		t.Errorf("the pod sees %d bytes, want nearly 2 GiB", got)
	}
	wantBytes(t, data(v), 1, 8*mib)
	eventually(t, "the mark goes", func() bool { return !marked(account, v.ID) })
	account.SetDurations(yandex.Durations{})
	wantCode(t, "asking for the same growth again", second(v.Expand(t.Context(), 2*gib)), codes.OK)
	wantDisk(t, account, v.ID, 2*gib, false)
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete, other.Delete)
	w.wantNothingLeft(t)
	return took
}

// TestGrowthMarksEnd: the last wish counts, one that is fulfilled already is none, and one that the cloud
// refuses keeps no pod away and is tried again another time.
func TestGrowthMarksEnd(t *testing.T) {
	t.Parallel()
	w, account := startYandex(t, yandex.Options{Rules: yandex.Rules{ResizeRefused: true}})
	v := create(t, w.Pair, programs.Claim{Name: "stubborn", Filesystem: "xfs", Size: gib})
	must(t, v.Attach, v.Stage, v.Publish)
	write(t, data(v), 1, 8*mib)
	moves := func() {
		t.Helper()
		must(t, v.Unpublish, v.Unstage, v.Detach, v.Attach, v.Stage, v.Publish)
		wantBytes(t, data(v), 1, 8*mib)
	}
	wishes := func(size int64, want codes.Code) {
		t.Helper()
		wantCode(t, name("growing in use to ", size), second(v.Expand(t.Context(), size)), want)
	}

	wishes(4*gib, codes.FailedPrecondition)
	wishes(gib, codes.OK)
	wantDisk(t, account, v.ID, gib, false)

	wishes(4*gib, codes.FailedPrecondition)
	wishes(2*gib, codes.FailedPrecondition)
	moves()
	wantDisk(t, account, v.ID, 2*gib, false)

	wishes(3*gib, codes.FailedPrecondition)
	refusal := account.Arm(yandex.Fault{
		Route: "DiskService/Update", Body: name(`"size":"`, 3*gib),
		Effect: faults.Effect{Status: int(codes.ResourceExhausted), Message: "Quota limit compute.disks.size exceeded"},
	})
	moves()
	wantDisk(t, account, v.ID, 2*gib, true)
	if refusal.Hits() == 0 {
		t.Error("nobody tried to grow the disk, so this proves nothing")
	}
	refusal.Disarm()
	moves()
	wantDisk(t, account, v.ID, 3*gib, false)
	if got := filesystemSize(t, v.Target); got < 3*gib*85/100 {
		t.Errorf("the pod sees %d bytes, want nearly 3 GiB", got)
	}
	must(t, v.Unpublish, v.Unstage, v.Detach, v.Delete)
	w.wantNothingLeft(t)
}

// TestRestoreInAnotherZone: a snapshot of a volume that a pod has is restored in another zone and to a larger size,
// with the data of that moment, in a filesystem that fills its disk.
func TestRestoreInAnotherZone(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kindName(kind), func(t *testing.T) {
			const zone = "ru-central1-b"
			dir := folder(t)
			account := yandex.Start(t, yandex.Options{DataDir: filepath.Join(dir, "account"), Durations: yandex.Each(clock.Fixed(actionTime))})
			owned := &accounts.Yandex{Cloud: account}
			w := startEmulated(t, dir, owned, nil)
			owned.Shape.Zone = zone
			there := beside(t, w.Pair)

			source := create(t, w.Pair, programs.Claim{Name: "source", Filesystem: kind, Size: gib})
			must(t, source.Attach, source.Stage, source.Publish)
			write(t, data(source), 1, 8*mib)
			snap := snapshot(t, source, "in-use")
			write(t, data(source), 2, 8*mib)
			if kind == "btrfs" { // it refuses two filesystems of one id on one machine, which both machines are here
				must(t, source.Unpublish, source.Unstage, source.Detach)
			}
			copied := create(t, there, programs.Claim{Name: "copy", Filesystem: kind, Size: 2 * gib, Source: snap.Source()})
			if d, _ := account.Disk(copied.ID); d.Zone != zone || d.Size != 2*gib {
				t.Errorf("the copy has %d bytes in %s, want 2 GiB in %s", d.Size, d.Zone, zone)
			}
			must(t, copied.Attach, copied.Stage, copied.Publish)
			wantBytes(t, data(copied), 1, 8*mib)
			if kind != "" {
				wantGrown(t, copied, 2*gib)
			}
			must(t, copied.Unpublish, copied.Unstage, copied.Detach, copied.Delete)
			if kind != "btrfs" {
				wantBytes(t, data(source), 2, 8*mib)
				must(t, source.Unpublish, source.Unstage, source.Detach)
			}
			must(t, snap.Delete, source.Delete)
			w.wantNothingLeft(t)
		})
	}
}
