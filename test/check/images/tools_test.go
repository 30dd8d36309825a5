//go:build images

package images_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

// Every tool starts with nothing but what is in the image.
func TestToolsOfTheNodeImageStart(t *testing.T) {
	root, c, _ := unpack(t, "node")
	for _, tool := range tools(t) {
		flag := map[string]string{"mkfs.ext4": "-V", "e2fsck": "-V", "mkfs.xfs": "-V", "xfs_growfs": "-V", "xfs_repair": "-V"}[tool]
		if flag == "" {
			flag = "--version"
		}
		if out, err := run(t, root, c, tool, flag); err != nil {
			t.Errorf("%s %s = %v\n%s", tool, flag, err, out)
		}
	}
}

// serve is what happens to a volume on a node, each command from the image: chroot's first argument is its root.
// The shell is the machine's, because the image has none and a mount lasts as long as its namespace.
const serve = `set -eu
root=$1 fs=$2 device=$3
in_image() { chroot "$root" "$@"; }
mount -t devtmpfs devtmpfs "$root/dev"
mount -t proc proc "$root/proc"
case "$fs" in
xfs) in_image mkfs.xfs -f -K -i nrext64=0 "$device" ;;
*) in_image "mkfs.$fs" "$device" ;;
esac
in_image blkid -p -o export "$device" | grep -x "TYPE=$fs"
in_image mount -t "$fs" "$device" /run
echo content >"$root/run/file"
before=$(stat -f -c %b "$root/run")
truncate -s 400M "$4"
losetup --set-capacity "$device"
case "$fs" in
ext4) before=0 ;; # no program grows it
xfs) in_image xfs_growfs /run ;;
esac
grep -x content "$root/run/file"
test "$(stat -f -c %b "$root/run")" -gt "$before"
in_image umount /run
case "$fs" in
ext4) in_image e2fsck -f -p "$device" ;;
xfs) in_image xfs_repair -n "$device" ;;
esac
`

// Every tool does what the node asks of it: a volume is made, mounted, grown, unmounted and checked.
func TestToolsOfTheNodeImageServeAVolume(t *testing.T) {
	root, c, _ := unpack(t, "node")
	for _, dir := range []string{"dev", "proc"} {
		expect.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for _, fs := range []string{"ext4", "xfs"} {
		t.Run(fs, func(t *testing.T) {
			file, device := loopDevice(t, 320<<20)
			cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--", "/bin/sh", "-c", serve, "serve", root, fs, device, file)
			cmd.Env = c.Config.Env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", fs, err, out)
			}
			if fs == "xfs" {
				checkOldKernels(t, file)
			}
		})
	}
}

// encrypt is what happens to the header of an encrypted volume. A mapping needs device-mapper, which machines that build
// images may not have.
const encrypt = `set -eu
mount -t proc proc "$1/proc"
mount -t devtmpfs devtmpfs "$1/dev"
truncate -s 64M "$1/volume"
printf secret | chroot "$1" cryptsetup luksFormat --batch-mode --type luks2 --cipher aes-xts-plain64 --key-size 512 --sector-size 512 \
	--pbkdf argon2id --pbkdf-memory 65536 --iter-time 1000 --subsystem cloudblock --key-file - /volume
echo '{"type": "note", "keyslots": []}' | chroot "$1" cryptsetup token import --token-id 0 --json-file - /volume
chroot "$1" cryptsetup luksDump --dump-json-metadata /volume | grep '"type": *"note"'
chroot "$1" cryptsetup token remove --token-id 0 /volume
printf secret | chroot "$1" cryptsetup open --test-passphrase --serialize-memory-hard-pbkdf --type luks2 --key-file - /volume
if printf wrong | chroot "$1" cryptsetup open --test-passphrase --type luks2 --key-file - /volume; then exit 1; fi
chroot "$1" blkid -p -o export /volume | grep -x TYPE=crypto_LUKS
`

// TestToolsOfTheNodeImageEncrypt: cryptsetup loads more libraries than it links.
func TestToolsOfTheNodeImageEncrypt(t *testing.T) {
	root, c, _ := unpack(t, "node")
	for _, dir := range []string{"dev", "proc"} {
		expect.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--", "/bin/sh", "-c", encrypt, "encrypt", root)
	cmd.Env = c.Config.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// loopDevice makes a loop device over a new file.
func loopDevice(t *testing.T, size int64) (file, device string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "volume.img")
	expect.NoError(t, os.WriteFile(file, nil, 0o600))
	expect.NoError(t, os.Truncate(file, size))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatalf("losetup: %v", err)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("detach %s: %v\n%s", device, err, out)
		}
	})
	return file, device
}

// checkOldKernels: an xfs has only the features that a kernel of 5.10 mounts: ftype, sparse inodes, its own
// UUID in the metadata, and large timestamps (fs/xfs/libxfs/xfs_format.h, XFS_SB_FEAT_INCOMPAT_*).
func checkOldKernels(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	expect.NoError(t, err)
	defer f.Close()
	const incompatAt, known = 216, 0b1111
	var incompat [4]byte
	if _, err := f.ReadAt(incompat[:], incompatAt); err != nil {
		t.Fatal(err)
	}
	if got := binary.BigEndian.Uint32(incompat[:]); got == 0 || got&^known != 0 {
		t.Errorf("the xfs has the features %#x, want some of %#x and no other", got, known)
	}
}

// group is what happens to a volume group. A logical volume needs device-mapper, which machines that build images may not have.
const group = `set -eu
mount -t devtmpfs devtmpfs "$1/dev"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
lvm() { chroot "$root" lvm "$@" --config "devices{filter=[\"a|^$device$|\",\"r|.*|\"]}"; }
own() { chroot "$root" lvm "$@" --devicesfile cloudblock-imagetest; }
export DM_DISABLE_UDEV=1
root=$1 device=$2
lvm pvcreate -y "$device"
lvm vgcreate -y imagetest "$device"
if chroot "$root" /cloudblock-controller volumes --cloud local --local-pool lvm:imagetest >"$root/tmp/said" 2>&1; then exit 1; fi
grep "lvm:imagetest: it has no devices file" "$root/tmp/said"
mkdir -p "$root/etc/lvm/devices"
own lvmdevices -y --adddev "$device"
own vgchange --addtag cloudblock-node=n1 --addtag cloudblock-pool=default imagetest
chroot "$root" /cloudblock-controller volumes --cloud local --local-pool lvm:imagetest >"$root/tmp/said" 2>&1
`

// TestToolsOfTheImageForVolumeGroups: LVM makes a volume group, and the controller reads it.
func TestToolsOfTheImageForVolumeGroups(t *testing.T) {
	root, c, _ := unpack(t, "lvm")
	for _, dir := range []string{"dev", "proc", "sys"} {
		expect.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	_, device := loopDevice(t, 64<<20)
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--", "/bin/sh", "-c", group, "group", root, device)
	cmd.Env = c.Config.Env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
