package disks_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

func TestDataFollowsVolumesAndSnapshots(t *testing.T) {
	dir := t.TempDir()
	folder, err := disks.Open(dir)
	must(t, err)
	const mib = 1 << 20
	source := disks.Disk{ID: "v-1", Device: "scsi-0DO_Volume_pvc-1", Size: 8 * mib}
	must(t, folder.Create(source, ""))
	if got := filepath.Base(folder.Path(source)); got != source.Device {
		t.Errorf("the file is named %s, want the device's name %s", got, source.Device)
	}
	// At the beginning, in the middle and at the very end, with holes between.
	want := make([]byte, source.Size)
	for _, at := range []int{0, 5 * mib, 8*mib - 5} {
		copy(want[at:], "bytes")
	}
	must(t, sparse(folder.Path(source), want))
	must(t, folder.Snapshot(source, "s-1"))
	must(t, sparse(folder.Path(source), make([]byte, source.Size)))
	restored := disks.Disk{ID: "v-2", Device: "scsi-0DO_Volume_pvc-2", Size: 8 * mib}
	must(t, folder.Create(restored, "s-1"))
	if got, err := os.ReadFile(folder.Path(restored)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the restored disk differs from what the source held (%v)", err)
	}
	restored.Size *= 2
	must(t, folder.Grow(restored))
	if got, err := os.ReadFile(folder.Path(restored)); err != nil || !bytes.Equal(got, append(want, make([]byte, len(want))...)) {
		t.Errorf("the grown disk is not the old one followed by zeros (%v)", err)
	}
	for range 2 {
		if err := folder.RemoveSnapshot("s-1"); err != nil {
			t.Errorf("RemoveSnapshot() = %v", err)
		}
	}
	if err := folder.Remove(restored); err != nil {
		t.Error(err)
	}
	if err := folder.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// sparse writes data where it is not zero.
func sparse(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 4096
	if err := f.Truncate(0); err != nil {
		return err
	}
	for at := 0; at < len(data); at += block {
		piece := data[at:min(at+block, len(data))]
		if bytes.Count(piece, []byte{0}) == len(piece) {
			continue
		}
		if _, err := f.WriteAt(piece, int64(at)); err != nil {
			return err
		}
	}
	return f.Truncate(int64(len(data)))
}
