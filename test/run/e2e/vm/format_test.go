//go:build vm

package vm

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// wantRefused wants stage to refuse the volume with an error that has these words, and to leave its disk as it is.
func (v *volume) wantRefused(says string) {
	v.t.Helper()
	before := v.content()
	err := v.stage()
	wantCode(v.t, "stage", err, codes.FailedPrecondition)
	if err != nil && !strings.Contains(err.Error(), says) {
		v.t.Errorf("stage = %v, want an error that says %q", err, says)
	}
	if v.content() != before {
		v.t.Error("stage has written to the disk")
	}
	if mounts := v.mounts(); mounts != "" {
		v.t.Errorf("the volume is mounted: %s", mounts)
	}
}

const sector = 512

// sectors returns a sector of each page between two offsets: a read of any byte of the page fails with it.
func sectors(from, to int64) []int64 {
	var out []int64
	for at := from; at < to; at += 4096 {
		out = append(out, at/sector)
	}
	return out
}

// F1: a disk that cannot be read is never taken for a blank one, wherever the fault is. QEMU reports the
// read errors of a real disk with the cloud's own name.
func TestUnreadableDiskIsNeverFormatted(t *testing.T) {
	const size = 64 * mib
	regions := []struct {
		name    string
		sectors []int64
	}{
		{"the first sector", []int64{0}},
		{"the superblock of ext4", []int64{2}},
		{"one MiB in the middle", sectors(size/2, size/2+mib)},
		{"the last sector", []int64{size/sector - 1}},
		{"every sector", sectors(0, size)},
	}
	filesystems := []string{"ext4", "xfs"}
	if testing.Short() {
		regions, filesystems = regions[2:3], filesystems[:1]
	}
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, region := range regions {
			t.Run("blank, "+region.name, func(t *testing.T) {
				v := h.host(t, h.cloud).newVolume("ext4", size)
				v.disk.Unreadable = region.sectors
				v.attach()
				v.wantRefused("cannot be read")
				v.repair()
				v.ok(v.stage, v.publish) // the refusal was not for another reason
				v.down()
			})
		}
		for _, fs := range filesystems {
			t.Run(fs+" with files, its start", func(t *testing.T) {
				v := h.host(t, h.cloud).newVolume(fs, sizeFor(fs))
				v.attach()
				v.ok(v.stage, v.publish)
				want := v.fill("data", mib)
				v.down()
				v.detach()
				v.disk.Unreadable = sectors(0, mib)
				v.attach()
				v.wantRefused("")
				v.repair()
				v.ok(v.stage, v.publish)
				v.wantSum("data", want)
				v.down()
			})
		}
	})
}

// repair plugs the disk in again, without its faults.
func (v *volume) repair() {
	v.t.Helper()
	v.detach()
	v.disk.Unreadable = nil
	v.attach()
}

// F5: a disk that is smaller than promised is neither formatted nor mounted.
func TestTruncatedDisk(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		blank := h.newVolume("ext4", 64*mib)
		must(t, os.Truncate(blank.disk.File, 64*mib-4096))
		blank.attach()
		blank.wantRefused("")

		full := h.newVolume("ext4", 64*mib)
		full.attach()
		full.ok(full.stage, full.publish)
		full.fill("data", mib)
		full.down()
		full.detach()
		must(t, os.Truncate(full.disk.File, 32*mib))
		full.attach()
		full.wantRefused("")
	})
}

// F1: whatever another program has left on a disk, mkfs does not run over it. The programs are the real ones, in
// the guest.
func TestForeignContentIsNeverFormatted(t *testing.T) {
	notShort(t)
	const size = 320 * mib // xfs is made in 300 MiB and more
	h := sharedMachine(t, vm.DigitalOcean)
	made := func(script string) func(*volume, string) {
		return func(v *volume, kernel string) {
			v.run("set -e; disk=/dev/%s; %s; sync; udevadm settle", kernel, script)
		}
	}
	put := func(at int64, data string) func(*volume, string) {
		return func(v *volume, _ string) {
			v.detach()
			v.put(at, data)
			v.attach()
		}
	}
	for _, tc := range []struct {
		name string
		set  func(v *volume, kernel string)
		fs   string
		says string
	}{
		{"an ext4", made("mkfs.ext4 -q $disk"), "xfs", "ext4"},
		{"an xfs", made("mkfs.xfs -q -K $disk"), "ext4", "xfs"},
		{"a btrfs", made("mkfs.btrfs -q -K $disk"), "ext4", "btrfs"},
		{"a vfat", made("mkfs.vfat $disk"), "ext4", ""},
		{"a swap area", made("mkswap -q $disk"), "ext4", "swap"},
		{"a GPT", made("echo ',,L' | sfdisk -q --label gpt $disk"), "ext4", ""},
		{"an MBR", made("echo ',,L' | sfdisk -q --label dos $disk"), "ext4", ""},
		{"the backup of a GPT", made("echo ',,L' | sfdisk -q --label gpt $disk; dd if=/dev/zero of=$disk bs=1M count=1 status=none"), "ext4", "not blank"},
		{"a LUKS1 header", made("echo secret | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 $disk -"), "ext4", "LUKS"},
		{"a LUKS2 header", made("echo secret | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $disk -"), "ext4", "LUKS"},
		{"a physical volume of LVM", made("pvcreate -q -q -y $disk"), "ext4", "LVM"},
		{"a RAID member, metadata 0.90", raid("0.90"), "ext4", "raid"},
		{"a RAID member, metadata 1.0", raid("1.0"), "ext4", "raid"},
		{"a RAID member, metadata 1.1", raid("1.1"), "ext4", "raid"},
		{"a RAID member, metadata 1.2", raid("1.2"), "ext4", "raid"},
		{"a ZFS label", put(size-100*1024, "\x0c\xb1\xba\x00"), "ext4", "not blank"},
		{"a bcachefs superblock", put(4096+24, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"), "ext4", ""},
		{"random bytes at the start", put(0, random(512)), "ext4", "not blank"},
		{"one byte at the end", put(size-1, "x"), "ext4", "not blank"},
		{"random bytes everywhere", put(0, random(int(size))), "ext4", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := h.host(t, h.cloud).newVolume(tc.fs, size)
			tc.set(v, v.attach())
			v.wantRefused(tc.says)
		})
	}
}

// raid makes one half of a mirror, and stops the array.
func raid(metadata string) func(*volume, string) {
	return func(v *volume, kernel string) {
		// The usual rules of udev assemble an array whenever its disk changes.
		v.t.Cleanup(func() { v.run("udevadm settle; mdadm --stop --scan") })
		v.run(`set -e; mdadm --create /dev/md99 --run --level=1 --raid-devices=2 --metadata=%s /dev/%s missing 2>&1
			udevadm settle; mdadm --stop /dev/md99 2>&1; sync`, metadata, kernel)
	}
}

// F1, F11: a disk whose volume group LVM has activated, as the usual rules of udev do when it is plugged in, is in use.
func TestVolumeGroupThatWasActivated(t *testing.T) {
	notShort(t)
	h := sharedMachine(t, vm.DigitalOcean)
	v := h.newVolume("ext4", 160*mib)
	kernel := v.attach()
	v.run("set -e; disk=/dev/%s; pvcreate -q -q -y $disk; vgcreate -q -q theirs $disk; lvcreate -q -q -y -L 64M -n data theirs; mkfs.ext4 -q /dev/theirs/data; sync", kernel)
	t.Cleanup(func() { v.run("vgchange -q -q -an theirs || true") })
	v.wantRefused("in use")
	v.run("vgchange -q -q -an theirs && udevadm settle")
	v.wantRefused("LVM")
}

// faults are tables of device-mapper over a disk of 262144 sectors (128 MiB): {disk} is the disk.
var faults = []struct{ name, table string }{
	{"dm-error everywhere", "0 262144 error"},
	{"dm-error at the start", "0 8 error\n8 262136 linear {disk} 8"},
	{"dm-error in the middle", "0 131072 linear {disk} 0\n131072 4096 error\n135168 126976 linear {disk} 135168"},
	{"dm-error at the end", "0 262136 linear {disk} 0\n262136 8 error"},
	{"dm-flakey, no I/O", "0 262144 flakey {disk} 0 0 60"},
	{"dm-flakey, no write", "0 262144 flakey {disk} 0 0 60 1 error_writes"},
}

// F1, F3, F6: a device of device-mapper has no identity of its own, so it is refused under the cloud's names. To meet
// its faults the node program looks for loop devices here, and one is built on each faulty device.
func TestFaultsOfDeviceMapper(t *testing.T) {
	notShort(t)
	t.Parallel()
	const size = 128 * mib
	h := ownMachine(t, vm.DigitalOcean, "--device-dir=/devices")
	h.run("mkdir -p /devices; modprobe dm-flakey")
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			v := h.host(t, h.cloud).newVolume("ext4", size)
			table := strings.ReplaceAll(fault.table, "{disk}", "/dev/"+v.attach())
			// The name of the loop device's file, which is its identity, is the kernel's of the device below.
			dm := v.run("dmsetup create faulty <<'END' >&2 && basename $(readlink -f /dev/mapper/faulty)\n%s\nEND", table)
			v.run("ln -sfn $(losetup --direct-io=on --find --show /dev/%[1]s) /devices/%[1]s", dm)
			t.Cleanup(func() {
				v.run("umount -q %s; losetup -d $(readlink /devices/%[2]s); rm /devices/%[2]s; dmsetup remove --retry faulty", v.staging, dm)
			})
			v.context.DeviceName, v.context.Serial = dm, ""
			before := v.content()
			if err := v.stage(); err == nil {
				t.Error("stage of a disk with a fault succeeded")
			}
			if v.content() != before || v.mounts() != "" {
				t.Errorf("the disk was changed, or is mounted: %s", v.mounts())
			}
			v.run("dmsetup suspend --noflush faulty; dmsetup load faulty --table '0 262144 linear %s 0'; dmsetup resume faulty",
				strings.Fields(v.run("readlink -f /dev/disk/by-id/%s", v.disk.Link()))[0])
			v.ok(v.stage, v.publish)
			want := v.fill("data", mib)
			v.ok(v.unpublish, v.unstage, v.stage, v.publish)
			v.wantSum("data", want)
			v.down()
		})
	}
	t.Run("under the cloud's names", func(t *testing.T) {
		v := sharedMachine(t, vm.DigitalOcean).newVolume("ext4", size)
		kernel := v.attach()
		v.run("dmsetup create mapped --table '0 262144 linear /dev/%s 0' && ln -sfn ../../dm-$(dmsetup info -c --noheadings -o minor mapped) /dev/disk/by-id/%s",
			kernel, v.disk.Link())
		t.Cleanup(func() { v.run("dmsetup remove --retry mapped") })
		before := v.content()
		if err := v.stageWithout(); err == nil || v.content() != before {
			t.Errorf("stage through a device of device-mapper = %v, want an error and no change", err)
		}
	})
}
