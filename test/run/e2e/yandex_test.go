//go:build e2e

package e2e

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

// A5, A7: as many volumes as a machine reports attach, whatever its hardware, and one more is ResourceExhausted where
// the hardware is old.
func TestTheLimitOfAnInstance(t *testing.T) {
	t.Parallel()
	for generation, takesMore := range map[string]bool{yandex.GenerationUnknown: false, yandex.Generation11: false, yandex.Generation12: true} {
		t.Run("generation "+generation, func(t *testing.T) {
			dir := folder(t)
			account := yandex.Start(t, yandex.Options{DataDir: filepath.Join(dir, "account"), Durations: yandex.Each(clock.Fixed(actionTime))})
			w := startEmulated(t, dir, &accounts.Yandex{Cloud: account, Shape: yandex.Instance{Generation: generation, Cores: runtime.NumCPU()}})
			info, err := csi.NewNodeClient(w.Node.Conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
			wantCode(t, "NodeGetInfo", err, codes.OK)
			limit := info.GetMaxVolumesPerNode()
			if limit < 1 || limit > 13 {
				t.Skipf("this machine takes %d volumes, as one that boots by UEFI does", limit)
			}
			var there []*programs.Volume
			for n := range limit {
				v := create(t, w.Pair, programs.Claim{Name: name("fits-", n), Filesystem: "ext4", Size: gib})
				must(t, v.Attach)
				there = append(there, v)
			}
			more := create(t, w.Pair, programs.Claim{Name: "one-more", Filesystem: "ext4", Size: gib})
			if err := more.Attach(t.Context()); takesMore {
				wantCode(t, "attaching one more", err, codes.OK)
			} else if limit == 7 { // no disk of this machine takes a place
				wantCode(t, "attaching one more", err, codes.ResourceExhausted)
			}
			for _, v := range append(there, more) {
				must(t, v.Detach, v.Delete)
			}
			w.wantNothingLeft(t)
		})
	}
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
			w := startEmulated(t, dir, owned)
			owned.Shape.Zone = zone
			there := beside(t, w.Pair)

			source := create(t, w.Pair, programs.Claim{Name: "source", Filesystem: kind, Size: gib})
			must(t, source.Attach, source.Stage, source.Publish)
			write(t, data(source), 1, 8*mib)
			snap := snapshot(t, source, "in-use")
			write(t, data(source), 2, 8*mib)
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
			wantBytes(t, data(source), 2, 8*mib)
			must(t, source.Unpublish, source.Unstage, source.Detach)
			must(t, snap.Delete, source.Delete)
			w.wantNothingLeft(t)
		})
	}
}
