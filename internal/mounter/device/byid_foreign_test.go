package device

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A5, A6: the machine's own disks are counted, the cloud's volumes never, however many there are and also while
// one of them says nothing of itself yet.
func TestForeignDisksAreCountedAndVolumesAreNot(t *testing.T) {
	local := func(m machine, kernel string) {
		m.scsi(kernel, "QEMU", string(page(designator(2, 0, 0, "drive-"+kernel))))
		m.write("sys/block/"+kernel+"/device/type", "0\n")
	}
	ours := func(m machine, kernel, label string) {
		m.scsi(kernel, "Linode", string(page(designator(2, 0, 0, label))))
		m.write("sys/block/"+kernel+"/device/type", "0\n")
	}
	tests := map[string]struct {
		set           func(machine)
		want, volumes int64
	}{
		"no disk":             {func(machine) {}, 0, 0},
		"to boot and to swap": {func(m machine) { local(m, "sda"); local(m, "sdb") }, 2, 0},
		"the same with five volumes": {func(m machine) {
			local(m, "sda")
			local(m, "sdb")
			for n := range 5 {
				ours(m, fmt.Sprintf("sd%c", 'c'+n), fmt.Sprintf("pvc-%d", n))
			}
		}, 2, 5},
		"a volume that is just coming": {func(m machine) {
			local(m, "sda")
			ours(m, "sdc", "pvc-1")
			m.write("sys/block/sdc/device/vpd_pg83", "")
		}, 1, 0},
		"a disk that says nothing of itself": {func(m machine) {
			m.symlink("../../../bus/scsi", "sys/block/sda/device/subsystem")
		}, 1, 0},
		"a drive for media": {func(m machine) {
			local(m, "sda")
			local(m, "sr0")
			m.write("sys/block/sr0/device/type", "5\n")
		}, 1, 0},
		"disks of other buses": {func(m machine) {
			m.virtio("vda", "root")
			m.symlink("../../../bus/nvme", "sys/block/nvme0n1/device/subsystem")
		}, 0, 0},
		"a loop device and one of memory": {func(m machine) {
			m.write("sys/block/loop0/loop/backing_file", "/x\n")
			m.write("sys/block/zram0/dev", "252:0\n")
		}, 0, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.set(m)
			b := NewByID(ByIDConfig{DeviceDir: filepath.Join(m.root, "by-id"), SysDir: filepath.Join(m.root, "sys"), LinkPrefix: "scsi-0Linode_Volume_"})
			if got, err := b.Foreign(); got != tc.want || err != nil {
				t.Errorf("Foreign = %d, %v, want %d", got, err, tc.want)
			}
			if got, err := b.Volumes(t.Context()); got != tc.volumes || err != nil {
				t.Errorf("Volumes = %d, %v, want %d", got, err, tc.volumes)
			}
		})
	}
}

// L9, A5: the kernel asks a virtio disk for its serial at each read. A disk that hangs ends neither the start of the program nor a
// scrape of its metrics, and counts as the machine's own meanwhile.
func TestForeignDisksWhileADiskHangs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.virtio("vdx", "fhm0123456789abcdefg")
	m.virtio("vdy", "fhm1123456789abcdefg")
	serial := filepath.Join(m.root, "sys/block/vdy/serial")
	must(t, errors.Join(os.Remove(serial), unix.Mkfifo(serial, 0o600)))
	b := NewByID(ByIDConfig{DeviceDir: filepath.Join(m.root, "by-id"), SysDir: filepath.Join(m.root, "sys"), LinkPrefix: "virtio-"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			if got, err := b.Foreign(); got != 1 || err != nil {
				t.Errorf("Foreign = %d, %v, want 1", got, err)
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * openBound):
		t.Error("Foreign hangs with the disk")
	}
	disk, err := os.OpenFile(serial, os.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, err)
	must(t, errors.Join(os.Remove(serial), disk.Close())) // what reads it returns
	<-done
}
