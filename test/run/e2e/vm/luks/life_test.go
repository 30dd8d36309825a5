//go:build vm

package luks_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

const (
	driverDO     = "digitalocean.csi.cloudblock.io"
	driverLinode = "linode.csi.cloudblock.io"
	driverYandex = "yandex.csi.cloudblock.io"
)

// F1: an encrypted volume on the disks of each cloud is formatted once, opens with its key only, and holds nothing in
// the clear.
func TestLife(t *testing.T) {
	for cloud, driver := range map[string]string{vm.DigitalOcean: driverDO, vm.Linode: driverLinode, vm.Yandex: driverYandex} {
		t.Run(cloud, func(t *testing.T) {
			filesystem := map[string]string{vm.DigitalOcean: "ext4", vm.Linode: "xfs", vm.Yandex: "ext4"}[cloud]
			if cloud != vm.DigitalOcean {
				quickKeys(t) // one with the real derivation is enough
			}
			v := attach(t, node(t, cloud), cloud, driver, filesystem, 400*mib)
			v.secrets = nil
			wantCode(t, "stage without the secret", v.stage(), codes.InvalidArgument, "luksKey")
			v.secrets = map[string]string{"luksKey": secret}
			v.ok(v.stage, v.publish)
			v.run("echo '%s' >%s/data; sync", clear, v.target)
			if kind := v.run("blkid -p -o value -s TYPE %s", v.kernel()); kind != "crypto_LUKS" {
				t.Errorf("the disk holds %q", kind)
			}
			if dump := v.run("cryptsetup luksDump %s", v.kernel()); !strings.Contains(dump, "Version:       \t2") || strings.Contains(dump, "unformatted") {
				t.Errorf("the header is %s", dump)
			}
			if leaked := v.run(`grep -al 'correc[t] horse' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | grep -v "/$$/" || true; grep -rl 'correc[t] horse' /run /csi /var/lib/kubelet/plugins/%s 2>/dev/null || true`, cloud); leaked != "" {
				t.Errorf("the passphrase is in %s", leaked)
			}
			v.ok(v.unpublish, v.unstage)
			v.free()
			v.unplug()
			onDisk, err := os.ReadFile(v.disk.File)
			check(t, err)
			if bytes.Contains(onDisk, []byte(clear)) || bytes.Contains(onDisk, []byte(secret[:20])) {
				t.Error("the disk holds what was written, or the passphrase, in the clear")
			}
			v.plug()
			v.secrets["luksKey"] = "another"
			wantCode(t, "stage with the wrong key", v.stage(), codes.InvalidArgument, "passphrase")
			v.free()
			v.secrets["luksKey"] = strings.TrimSpace(secret)
			wantCode(t, "stage without the key's last byte", v.stage(), codes.InvalidArgument, "passphrase")
			v.secrets["luksKey"] = secret
			v.ok(v.stage, v.publish)
			v.wantClear(v.target)
			// As a volume that is not encrypted it is left alone.
			v.ok(v.unpublish, v.unstage)
			delete(v.context, driver+"/luks")
			wantCode(t, "stage as a plain volume", v.stage(), codes.FailedPrecondition, "crypto_LUKS")
			v.free()
		})
	}
}

// F1: after an operator has changed the passphrase with cryptsetup, the old one opens nothing.
func TestChangedKey(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "ext4", 100*mib)
	v.ok(v.stage)
	v.run("echo '%s' >%s/data", clear, v.staging)
	v.ok(v.unstage)
	v.run(`printf '%%s\n' 'correct horse battery staple, with more than sixty-four bytes of text in it' >/run/old; printf new >/run/new
		cryptsetup luksChangeKey --batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file /run/old %s /run/new; rm /run/old /run/new`, v.kernel())
	wantCode(t, "stage with the old key", v.stage(), codes.InvalidArgument, "passphrase")
	v.secrets["luksKey"] = "new"
	v.ok(v.stage)
	v.wantClear(v.staging)
	v.ok(v.unstage)
	v.free()
}

// E2: the disk, the mapping and the filesystem grow, online with the key and when the volume is staged.
func TestGrowth(t *testing.T) {
	quickKeys(t)
	for _, filesystem := range []string{"ext4", "xfs", ""} {
		t.Run("as "+filesystem, func(t *testing.T) {
			v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, filesystem, 400*mib)
			v.ok(v.stage, v.publish)
			check(t, v.expand(""))
			before := v.size()
			grow := func(size int64) {
				check(t, guest.Grow(t.Context(), v.disk, size))
				v.run("until [ $(blockdev --getsize64 %s) = %d ]; do sleep 0.1; done", v.kernel(), size)
			}
			grow(600 * mib)
			wantCode(t, "expand without the key", v.expand(""), codes.FailedPrecondition, "node-expand-secret-name")
			wantCode(t, "expand with the wrong key", v.expand("wrong"), codes.FailedPrecondition, "passphrase")
			for _, key := range []string{secret, secret, ""} {
				check(t, v.expand(key))
			}
			if got := v.size(); got < before+180*mib {
				t.Errorf("the volume has %d bytes after %d, want 200 MiB more", got, before)
			}
			v.ok(v.unpublish, v.unstage)
			grow(700 * mib)
			v.ok(v.stage, v.publish)
			if got := v.size(); got < before+270*mib {
				t.Errorf("the volume has %d bytes after %d, want 300 MiB more", got, before)
			}
			grow(800 * mib)
			check(t, v.stage()) // of a volume that is staged
			if got := v.size(); got < before+360*mib {
				t.Errorf("the volume has %d bytes after %d, want 400 MiB more", got, before)
			}
			v.ok(v.unpublish, v.unstage)
			v.free()
		})
	}
}

// F1: what a raw block volume publishes is the mapping, and its note is gone before a pod can write.
func TestBlock(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.Yandex), vm.Yandex, driverYandex, "", 100*mib)
	v.ok(v.stage)
	if dump := v.run("cryptsetup luksDump %s", v.kernel()); strings.Contains(dump, "unformatted") {
		t.Errorf("the header says that the volume is unformatted: %s", dump)
	}
	v.ok(v.publish)
	if got := v.size(); got != 84*mib {
		t.Errorf("the volume has %d bytes, want %d: the disk without its header", got, 84*mib)
	}
	if name := v.run("lsblk -ndo TYPE %s", v.target); name != "crypt" {
		t.Errorf("what is published is of type %q", name)
	}
	v.run("echo '%s' | dd of=%s bs=4096 conv=sync,notrunc oflag=direct", clear, v.target)
	v.ok(v.unpublish, v.unstage)
	v.free()
	v.ok(v.stage, v.publish)
	if got := v.run("head -c %d %s", len(clear), v.target); got != clear {
		t.Errorf("the volume holds %q, want %q", got, clear)
	}
	v.ok(v.unpublish, v.unstage)
	// What a pod wrote to it is data, whatever the volume is taken for later.
	fs := attach(t, v.Node, vm.Yandex, driverYandex, "ext4", 100*mib)
	v.capability = fs.capability
	wantCode(t, "stage it as a filesystem", v.stage(), codes.FailedPrecondition, "left as it is")
	v.free()
}

// TestDiscard: the mount option discard opens the way to the disk, and nothing else does.
func TestDiscard(t *testing.T) {
	quickKeys(t)
	n := node(t, vm.DigitalOcean)
	for option, want := range map[string]bool{"discard": true, "noatime": false} {
		v := attach(t, n, vm.DigitalOcean, driverDO, "ext4", 100*mib)
		v.capability.GetMount().MountFlags = []string{option}
		v.ok(v.stage)
		if table := v.run("dmsetup table"); strings.Contains(table, "allow_discards") != want {
			t.Errorf("with the option %s the mapping is %q", option, table)
		}
		v.ok(v.unstage)
		v.free()
	}
}

// TestReadOnly: a volume that is used read-only is never formatted. A raw block volume is opened so; a filesystem may have
// to replay its journal.
func TestReadOnly(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "ext4", 100*mib)
	v.capability.GetMount().MountFlags = []string{"ro"}
	wantCode(t, "stage a blank volume read-only", v.stage(), codes.FailedPrecondition, "never formatted")
	if kind := v.run("blkid -p -o value -s TYPE %s || echo nothing", v.kernel()); kind != "nothing" {
		t.Errorf("the disk holds %q", kind)
	}
	v.capability.GetMount().MountFlags = nil
	v.ok(v.stage, v.unstage)
	v.capability.GetMount().MountFlags = []string{"ro"}
	v.ok(v.stage)
	if got := v.run("blockdev --getro $(findmnt -no SOURCE %s)", v.staging); got != "0" {
		t.Errorf("the mapping is read-only: %s", got)
	}
	v.ok(v.unstage)
	v.free()
	raw := attach(t, v.Node, vm.DigitalOcean, driverDO, "", 100*mib)
	raw.ok(raw.stage, raw.unstage)
	raw.capability.AccessMode.Mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	raw.ok(raw.stage)
	if got := raw.run("blockdev --getro %s/device", raw.staging); got != "1" {
		t.Errorf("the mapping of the raw block volume is read-only: %s", got)
	}
	raw.ok(raw.unstage)
	raw.free()
}

// sum is a checksum of the whole disk.
func (v *volume) sum() string { return v.run("sha256sum <%s", v.kernel()) }

// F1: a header that says nothing about its format, and holds nothing, is left as it is.
func TestForeignHeaders(t *testing.T) {
	quickKeys(t)
	n := node(t, vm.DigitalOcean)
	for name, prepare := range map[string]string{
		"made by hand": `printf %%s '%[2]s' | cryptsetup luksFormat --batch-mode --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file - %[1]s`,
		"of another volume that is being formatted": `printf %%s '%[2]s' | cryptsetup luksFormat --batch-mode --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --subsystem cloudblock --key-file - %[1]s
			echo '{"type":"cloudblock-unformatted","keyslots":[],"volume":"other"}' | cryptsetup token import --token-id 0 --json-file - %[1]s`,
		"of version 1": `printf %%s '%[2]s' | cryptsetup luksFormat --batch-mode --type luks1 --pbkdf-force-iterations 1000 --key-file - %[1]s`,
	} {
		t.Run(name, func(t *testing.T) {
			v := attach(t, n, vm.DigitalOcean, driverDO, "ext4", 100*mib)
			v.run(prepare, v.kernel(), secret)
			before := v.sum()
			wantCode(t, "stage", v.stage(), codes.FailedPrecondition, "")
			if v.sum() != before {
				t.Error("the disk was changed")
			}
			v.free()
		})
	}
}

// F1: a machine that cannot open a mapping says so before anything is written.
func TestWithoutDeviceMapper(t *testing.T) {
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "ext4", 100*mib)
	before := v.sum()
	v.run("mount -t tmpfs none /sys/class/misc; rm /dev/mapper/control")
	wantCode(t, "stage", v.stage(), codes.FailedPrecondition, "device-mapper")
	v.run("mknod /dev/mapper/control c 10 254") // of no driver
	wantCode(t, "stage with a node that leads nowhere", v.stage(), codes.FailedPrecondition, "device-mapper")
	v.run("umount /sys/class/misc; rm /dev/mapper/control; mknod /dev/mapper/control c 10 $(awk '$2 == \"device-mapper\" { print $1 }' /proc/misc)")
	v.run("mv $(command -v cryptsetup) /run/cryptsetup-away")
	wantCode(t, "stage without cryptsetup", v.stage(), codes.FailedPrecondition, "cryptsetup is not installed")
	if v.sum() != before {
		t.Error("the disk was changed")
	}
	v.run("mv /run/cryptsetup-away /usr/sbin/cryptsetup")
	v.ok(v.stage, v.unstage)
	v.free()
}
