package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// A5: where the machine's own disks look like volumes, those that are mounted for something else than a volume, and
// those with other serials, are foreign. Volumes count for nothing, attached, mounted or used raw.
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
		"beside a mount without a source":               {map[string]string{"vda": boot}, "66 28 0:39 / /x rw - tmpfs  rw\n" + hosts, 1},
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

// F3: a disk that the machine has mounted, or that MayBeVolume denies, is never opened as a volume.
func TestADiskThatTheMachineUsesIsNeverAVolume(t *testing.T) {
	const volume, boot = "fhmvolume00000000003", "fhmboot0000000000001"
	kubelet, other := t.TempDir(), t.TempDir() // other is the folder of another orchestrator
	must(t, os.Mkdir(filepath.Join(kubelet, "pods"), 0o755))
	tests := map[string]struct {
		serial, mount string
		kind          fault.Kind
	}{
		"a volume that is not mounted":      {volume, "", fault.None},
		"a volume that is staged":           {volume, kubelet + "/plugins/kubernetes.io/csi/d/h/globalmount", fault.None},
		"a volume that is published":        {volume, kubelet + "/pods/x/volumes/kubernetes.io~csi/pvc/mount", fault.None},
		"a volume of another orchestrator":  {volume, other + "/staging/v1", fault.None},
		"the disk of its folder":            {boot, other, fault.Precondition},
		"the disk of another folder":        {boot, other + "-images/layers", fault.Precondition},
		"a disk below the kubelet's folder": {boot, kubelet + "/images", fault.Precondition},
		"a disk that the machine mounts":    {boot, "/", fault.Precondition},
		"the disk of the kubelet's folder":  {boot, kubelet, fault.Precondition},
		"the disk of the pods' folder":      {boot, kubelet + "/pods", fault.Precondition},
		"a disk mounted in another plugins": {volume, "/srv/plugins/data", fault.Precondition},
		"a disk of another name":            {"my-data", "", fault.NotFound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.virtio("vdb", tc.serial)
			m.write("sys/block/vdb/dev", "252:16\n")
			m.symlink("../../block/vdb", "sys/dev/block/252:16")
			m.link("virtio-"+tc.serial, "vdb")
			mounts := ""
			if tc.mount != "" {
				mounts = "30 1 252:16 / " + tc.mount + " rw - ext4 /dev/vdb rw\n"
			}
			m.write("mountinfo", mounts)
			b := NewByID(ByIDConfig{
				DeviceDir: filepath.Join(m.root, "by-id"), SysDir: filepath.Join(m.root, "sys"), DevDir: filepath.Join(m.root, "dev"),
				LinkPrefix: "virtio-", MayBeVolume: regexp.MustCompile(`^[a-z0-9]{20}$`).MatchString, Mounts: filepath.Join(m.root, "mountinfo"),
				KubeletDir: kubelet,
			})
			if strings.HasPrefix(tc.mount, other) {
				b.kubeletDir = other
			}
			spec := Spec{Volume: "v1", Name: "virtio-" + tc.serial, Serial: tc.serial}
			_, err := b.Number(t.Context(), spec)
			if fault.Of(err) != tc.kind || (err == nil) != (tc.kind == fault.None) {
				t.Errorf("Number = %v, want kind %q", err, tc.kind)
			}
			err = b.verify(t.Context(), &Device{path: "/dev/vdb", number: unix.Mkdev(252, 16), spec: spec}, "vdb", true)
			if fault.Of(err) != tc.kind || (err == nil) != (tc.kind == fault.None) {
				t.Errorf("verify = %v, want kind %q", err, tc.kind)
			}
			if tc.kind == fault.None {
				return // there is no node to open
			}
			if _, err := b.Lookup(t.Context(), spec); fault.Of(err) != tc.kind {
				t.Errorf("Lookup = %v, want kind %q", err, tc.kind)
			}
			if _, err := b.ByNumber(t.Context(), "v1", unix.Mkdev(252, 16)); fault.Of(err) != tc.kind {
				t.Errorf("ByNumber = %v, want kind %q", err, tc.kind)
			}
		})
	}
}

// F11, L9: a disk whose identity cannot be read may be the volume's, so the volume is not reported as gone. The others are found.
func TestADiskThatHangsMayBeTheVolumes(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.virtio("vdb", "epd1")
	m.write("sys/block/vdb/dev", "252:16\n")
	m.virtio("vdc", "epd2")
	m.write("mountinfo", "")
	serial := filepath.Join(m.root, "sys/block/vdc/serial")
	must(t, errors.Join(os.Remove(serial), unix.Mkfifo(serial, 0o600)))
	disk, err := os.OpenFile(serial, os.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, err)
	defer func() { _ = disk.Close() }()
	b := m.resolver()
	b.mounts = filepath.Join(m.root, "mountinfo")
	for name, call := range map[string]func(ctx context.Context, serial string) error{
		"Release": func(ctx context.Context, serial string) error {
			return b.Release(ctx, Spec{Volume: "v", Serial: serial})
		},
		"Number": func(ctx context.Context, serial string) error {
			_, err := b.Number(ctx, Spec{Volume: "v", Serial: serial})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx, "epd2"); fault.Of(err) != fault.Unavailable {
			t.Errorf("%s of the volume = %v, want kind %q", name, err, fault.Unavailable)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if got, err := b.Number(ctx, Spec{Volume: "v", Serial: "epd1"}); got != unix.Mkdev(252, 16) || err != nil {
		t.Errorf("Number of another volume = %#x, %v, want 252:16", got, err)
	}
}
