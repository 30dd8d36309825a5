//go:build e2e

package node_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

// F5: a device that is missing, is too small or has somebody's data on it is refused, and nothing changes.
func TestDeviceThatIsNotAsPromised(t *testing.T) {
	calls := countMkfs(t)
	m := newMachine(t, machineConfig{})
	tests := map[string]struct {
		prepare func(t *testing.T, v *volume)
		code    codes.Code
		words   string
	}{
		"smaller than promised": {func(_ *testing.T, v *volume) {
			v.context[names.Driver+"/size"] = "99999744"
		}, codes.FailedPrecondition, "99999744"},
		"of another name": {func(_ *testing.T, v *volume) {
			v.context[names.Driver+"/device-name"] = "0123456789abcdef0123456789abcdef.img"
		}, codes.FailedPrecondition, ""},
		"with text in its first block": {func(t *testing.T, v *volume) {
			v.write(t, 0, "somebody's data")
		}, codes.FailedPrecondition, ""},
		"with a byte in its last block": {func(t *testing.T, v *volume) {
			v.write(t, 64*mib-1, "x")
		}, codes.FailedPrecondition, ""},
		"with another filesystem": {func(t *testing.T, v *volume) {
			sh(t, "mkfs.btrfs", "-q", "-M", v.image)
		}, codes.FailedPrecondition, "btrfs"},
		"with a partition table": {func(t *testing.T, v *volume) {
			v.write(t, 510, "\x55\xaa")
			v.write(t, 446, "\x00\x00\x02\x00\x83\xff\xff\xff\x01\x00\x00\x00\xff\x00\x00\x00")
		}, codes.FailedPrecondition, ""},
		"made from a snapshot and zeroed": {func(t *testing.T, v *volume) {
			v.write(t, 7*mib, "\x00")
			v.context = names.EncodeVolumeContext(driver.VolumeContext{Content: driver.ContentCopy})
		}, codes.FailedPrecondition, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := m.newVolume("ext4", 64*mib)
			tc.prepare(t, v)
			made := calls()
			v.refused(t, "stage", func() error { return v.stage(t.Context()) }, tc.code, tc.words)
			if got := calls(); got != made {
				t.Errorf("mkfs ran %d times, want never", got-made)
			}
			if loops := loopsBelow(m.dir); len(loops) > 0 {
				t.Errorf("the refused stage left %v", loops)
			}
		})
	}
	t.Run("taken away", func(t *testing.T) {
		v := m.newVolume("ext4", 64*mib)
		must(t, m.pool.Delete(t.Context(), must1(m.pool.FindByName(t.Context(), "pvc-7"))(t).Record.ID))
		wantCode(t, "stage of a volume that was deleted", v.stage(t.Context()), codes.NotFound)
		v.ok(v.unstage)
	})
	t.Run("an id of another node", func(t *testing.T) {
		v := m.newVolume("ext4", 64*mib)
		w := *v
		w.id = anyGoodID
		w.context = nil
		wantCode(t, "stage", w.stage(t.Context()), codes.NotFound)
		w.id = strings.Replace(v.id, "node-a", "node-b", 1)
		wantCode(t, "stage", w.stage(t.Context()), codes.NotFound)
		w.id = "vol-1"
		wantCode(t, "stage", w.stage(t.Context()), codes.NotFound)
		wantCode(t, "unstage", w.unstage(t.Context()), codes.NotFound)
		must(t, os.Mkdir(w.target, 0o700))
		wantCode(t, "publish", w.publish(t.Context()), codes.NotFound)
		wantCode(t, "unpublish", w.unpublish(t.Context()), codes.NotFound)
	})
}

// write puts text into the volume's image while it is not attached.
func (v *volume) write(t *testing.T, offset int64, text string) {
	t.Helper()
	f, err := os.OpenFile(v.image, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte(text), offset)
	must(t, err)
	must(t, f.Close())
}
