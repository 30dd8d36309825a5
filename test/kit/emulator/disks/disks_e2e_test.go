//go:build e2e

package disks_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/disks"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

// TestAttachWhileOthersReplaceFreeLoopDevices: another package's tests begin with new loop devices.
func TestAttachWhileOthersReplaceFreeLoopDevices(t *testing.T) {
	folder, err := disks.Open(t.TempDir())
	must(t, err)
	t.Cleanup(func() {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
	disk := disks.Disk{ID: "v-1", Device: "scsi-0DO_Volume_pvc-1", Size: 1 << 20}
	must(t, folder.Create(disk, ""))
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				if err := loops.Fresh(); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	links := t.TempDir()
	for i := range 3000 {
		if err := folder.Attach(disk, links); err != nil {
			t.Errorf("Attach %d = %v", i, err)
		}
		if inUse, err := folder.Detach(disk); inUse || err != nil {
			t.Errorf("Detach %d = %t, %v", i, inUse, err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
