package device

import (
	"path/filepath"
	"regexp"
	"testing"
)

// Where the machine's own disks look like volumes, those that are mounted for something else than a volume, and
// those with other serials, are foreign. Volumes count for nothing, attached, mounted or used raw (A5).
func TestForeignDisksThatLookLikeVolumes(t *testing.T) {
	const boot, data, volume, old = "fhmboot0000000000001", "fhmdata0000000000002", "fhmvolume00000000003", "csi-25174384"
	const pods = "30 1 252:16 / /var/lib/kubelet/pods/x/volumes/kubernetes.io~csi/pvc/mount rw - ext4 /dev/vdb rw\n"
	const staged = "31 1 252:16 / /var/lib/kubelet/plugins/kubernetes.io/csi/d/h/globalmount rw - ext4 /dev/vdb rw\n"
	const hosts = "32 1 252:1 /var/lib/kubelet/pods/x/etc-hosts /etc/hosts rw - ext4 /dev/vda1 rw\n"
	const btrfs = "33 1 0:35 /@ /var/lib/kubelet rw - btrfs /dev/vda1 rw\n"
	tests := map[string]struct {
		serials map[string]string // by kernel name
		mounts  string
		want    int64
	}{
		"the disk of the system, seen from a container": {map[string]string{"vda": boot}, hosts, 1},
		"the disk of the system, with btrfs":            {map[string]string{"vda": boot}, btrfs, 1},
		"beside a volume that is mounted":               {map[string]string{"vda": boot, "vdb": volume}, hosts + staged + pods, 1},
		"beside a volume that nobody has mounted yet":   {map[string]string{"vda": boot, "vdb": volume}, hosts, 1},
		"beside one that the vendor's driver attached":  {map[string]string{"vda": boot, "vdb": old}, hosts + staged, 1},
		"beside a disk of another name":                 {map[string]string{"vda": boot, "vdb": "my-data"}, hosts, 2},
		"beside a disk that the machine uses":           {map[string]string{"vda": boot, "vdb": data}, hosts + "34 1 252:16 / /data rw - xfs /dev/vdb rw\n", 2},
		"the disk of the system, with LVM in LUKS":      {map[string]string{"vda": boot}, "36 1 253:1 / / rw - ext4 /dev/mapper/vg-root rw\n", 1},
		"the disk of the system, with btrfs in LVM":     {map[string]string{"vda": boot}, "36 1 0:35 /@ / rw - btrfs /dev/mapper/vg-root rw\n", 1},
		"a line that makes no sense is none":            {map[string]string{"vda": boot}, "x\n\n35 1 252:1\n" + hosts, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			for kernel, serial := range tc.serials {
				m.virtio(kernel, serial)
			}
			m.write("sys/block/vda/dev", "252:0\n")
			m.write("sys/block/vda/vda1/dev", "252:1\n")
			m.symlink("../../../../dm-0", "sys/block/vda/vda1/holders/dm-0")
			m.symlink("../../../dm-1", "sys/block/dm-0/holders/dm-1")
			m.write("sys/block/dm-1/dev", "253:1\n")
			m.write("sys/block/dm-1/dm/name", "vg-root\n")
			if tc.serials["vdb"] != "" {
				m.write("sys/block/vdb/dev", "252:16\n")
			}
			m.write("mountinfo", tc.mounts)
			b := NewByID(ByIDConfig{
				DeviceDir: filepath.Join(m.root, "by-id"), SysDir: filepath.Join(m.root, "sys"), DevDir: filepath.Join(m.root, "dev"),
				LinkPrefix: "virtio-", MayBeVolume: regexp.MustCompile(`^([a-z0-9]{20}|csi-[0-9]+)$`).MatchString, Mounts: filepath.Join(m.root, "mountinfo"),
			})
			if got, err := b.Foreign(); got != tc.want || err != nil {
				t.Errorf("Foreign = %d, %v, want %d", got, err, tc.want)
			}
		})
	}
}
