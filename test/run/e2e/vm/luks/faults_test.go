//go:build vm

package luks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// F8, A4: the disk of a staged volume is taken away and comes back. The mapping that is left stands on nothing, and is
// closed before the disk is opened again.
func TestDiskThatGoes(t *testing.T) {
	quickKeys(t)
	for cloud, driver := range map[string]string{vm.DigitalOcean: driverDO, vm.Yandex: driverYandex} {
		for _, filesystem := range []string{"ext4", ""} {
			t.Run(cloud+" as "+filesystem, func(t *testing.T) {
				v := attach(t, node(t, cloud), cloud, driver, filesystem, 100*mib)
				v.ok(v.stage)
				if filesystem != "" {
					v.run("echo '%s' >%s/data; sync", clear, v.staging)
				}
				v.unplug()
				if v.run("ls /sys/class/block | grep ^dm-") == "" {
					t.Fatal("the mapping has gone with its disk")
				}
				v.plug()
				v.ok(v.stage, v.publish)
				if below := v.run("dmsetup deps -o devname | sed 's/.*(\\(.*\\))/\\1/'"); "/dev/"+below != v.kernel() {
					t.Errorf("the mappings stand on %q, want one on %s", below, v.kernel())
				}
				if filesystem != "" {
					v.wantClear(v.target)
				}
				v.ok(v.unpublish, v.unstage)
				v.free()
				// And one that never comes back.
				v.ok(v.stage)
				v.unplug()
				v.ok(v.unstage)
				v.free()
			})
		}
	}
}

// F8: a mapping of the volume's name that stands on another disk, and one of its disk under another name, are closed and
// never used; one that is in use stays, and the volume waits.
func TestOtherMappings(t *testing.T) {
	quickKeys(t)
	n := node(t, vm.DigitalOcean)
	v, other := attach(t, n, vm.DigitalOcean, driverDO, "ext4", 100*mib), attach(t, n, vm.DigitalOcean, driverDO, "ext4", 100*mib)
	v.ok(v.stage)
	name := v.run("dmsetup ls | cut -f1")
	v.run("echo '%s' >%s/data", clear, v.staging)
	v.ok(v.unstage)
	other.ok(other.stage, other.unstage)
	open := func(disk, name string) {
		v.run("printf '%%s\\n' '%s' >/run/key; cryptsetup open --type luks2 --key-file /run/key %s %s; rm /run/key", strings.TrimSpace(secret), disk, name)
	}
	for what, prepare := range map[string]func(){
		"its name on another disk":    func() { open(other.kernel(), name) },
		"its disk under another name": func() { open(v.kernel(), "byhand") },
		"its disk under its name":     func() { open(v.kernel(), name) },
	} {
		t.Run(what, func(t *testing.T) {
			prepare()
			v.ok(v.stage)
			if got := v.run("cat %s/data", v.staging); got != clear {
				t.Errorf("the volume holds %q, want %q", got, clear)
			}
			if left := v.run("dmsetup ls | cut -f1"); left != name {
				t.Errorf("the mappings are %q, want %q", left, name)
			}
			v.ok(v.unstage)
			v.free()
		})
	}
	open(v.kernel(), "byhand")
	// In a mount namespace of its own, so that no mount table of the node program has it.
	v.run(`mkdir -p /run/elsewhere
		unshare -m bash -c 'mount /dev/mapper/byhand /run/elsewhere; touch /run/mounted; exec sleep 1000' >/dev/null 2>&1 </dev/null &
		echo $! >/run/elsewhere.pid
		until [ -e /run/mounted ]; do sleep 0.1; done`)
	wantCode(t, "stage while it is mounted elsewhere", v.stage(), codes.Aborted, "")
	v.run("kill $(cat /run/elsewhere.pid); until cryptsetup close byhand; do sleep 0.1; done")
	v.ok(v.stage, v.unstage)
	v.free()
}

// F8, F11: what a pod has of a raw block volume is a bind of the mapping's node, which does not keep device-mapper from
// removing it, and the next mapping would have its number. It stays until the pod has gone, whether its disk is here or
// not.
func TestPodThatHasTheMapping(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "", 100*mib)
	v.ok(v.stage, v.publish)
	mapping := v.run("dmsetup ls")
	v.run("umount %s/device", v.staging)
	stays := func() {
		t.Helper()
		if now := v.run("dmsetup ls"); now != mapping {
			t.Errorf("the mappings are %q, want that of the pod, %q", now, mapping)
		}
	}
	wantCode(t, "stage without its bind", v.stage(), codes.FailedPrecondition, v.target)
	wantCode(t, "unstage without its bind", v.unstage(), codes.FailedPrecondition, v.target)
	stays()
	v.unplug()
	wantCode(t, "unstage without its disk", v.unstage(), codes.FailedPrecondition, v.target)
	stays()
	v.plug()
	wantCode(t, "stage of the disk that came back", v.stage(), codes.FailedPrecondition, v.target)
	stays()
	v.ok(v.unpublish, v.stage, v.unstage)
	v.free()
}

// F8: a cryptsetup that is killed between its requests to device-mapper leaves a mapping without a table, or with one
// that is not in use.
func TestHalfMadeMapping(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "ext4", 100*mib)
	v.ok(v.stage)
	name := v.run("dmsetup ls | cut -f1")
	v.ok(v.unstage)
	empty := func() { v.run("dmsetup create --notable --uuid CRYPT-LUKS2-0123-%[1]s %[1]s", name) }
	load := func() { v.run("dmsetup load --table '0 8 error' %s", name) }
	empty()
	v.ok(v.stage, v.unstage)
	v.free()
	empty()
	load()
	v.ok(v.stage, v.unstage)
	v.free()
	empty()
	load()
	v.ok(v.unstage)
	v.free()
}

// F6: if the machine is reset while the volume is in use, the next stage opens it with every synced file.
func TestReset(t *testing.T) {
	quickKeys(t)
	v := attach(t, node(t, vm.DigitalOcean), vm.DigitalOcean, driverDO, "ext4", 100*mib)
	v.ok(v.stage, v.publish)
	v.run("echo '%s' >%s/data; sync", clear, v.target)
	check(t, guest.Reset(t.Context()))
	if err := v.Start(t.Context()); err != nil { // the connection is of before the reset
		_, err = v.NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
		check(t, err)
	}
	_, err := guest.WaitForLink(t.Context(), v.disk)
	check(t, err)
	v.run("mkdir -p %s", v.staging)
	v.free()
	v.ok(v.stage, v.publish)
	v.wantClear(v.target)
	v.ok(v.unpublish, v.unstage)
	v.free()
}

// F1, F6, F15: the node program is killed while a program of the first stage runs. The next stage ends it, and the
// volume gets one header and one filesystem.
func TestKilledFirstStage(t *testing.T) {
	quickKeys(t)
	n := node(t, vm.DigitalOcean)
	for _, program := range []string{"cryptsetup luksFormat", "cryptsetup token import", "cryptsetup open", "mkfs.xfs", "cryptsetup token remove", "mount"} {
		t.Run(program, func(t *testing.T) {
			v := attach(t, n, vm.DigitalOcean, driverDO, "xfs", 400*mib)
			// The program that is to be there when the node program dies waits where it begins.
			name, verb, _ := strings.Cut(program, " ")
			v.run(`cat >/usr/local/sbin/%[1]s <<'END'
#!/bin/bash
case "$*" in
'%[2]s'*) touch /run/reached; exec sleep 600 ;;
esac
exec $(PATH=/usr/local/bin:/usr/sbin:/usr/bin command -v %[1]s) "$@"
END
				chmod +x /usr/local/sbin/%[1]s; rm -f /run/reached`, name, verb)
			ctx, cancel := context.WithCancel(t.Context())
			staged := make(chan error, 1)
			go func() { staged <- v.stage() }()
			v.run("until [ -e /run/reached ]; do sleep 0.1; done; rm /usr/local/sbin/%s", name)
			check(t, n.Stop(ctx, "KILL"))
			cancel()
			if err := <-staged; err == nil {
				t.Error("the stage that was killed succeeded")
			}
			check(t, n.Start(t.Context()))
			if verb == "token import" {
				// The header may be whole, and nothing says so.
				wantCode(t, "stage", v.stage(), codes.FailedPrecondition, "CB-FORMAT-UNFINISHED")
				v.ok(v.unstage)
				v.free()
				return
			}
			v.ok(v.stage, v.publish)
			v.run("echo '%s' >%s/data", clear, v.target)
			v.ok(v.unpublish, v.unstage)
			v.ok(v.stage)
			v.wantClear(v.staging)
			v.ok(v.unstage)
			v.free()
		})
	}
}

// F1, F6, F15: the node program is killed when the programs of the first stage have begun to write.
func TestKilledInTheMiddle(t *testing.T) {
	quickKeys(t)
	n := node(t, vm.DigitalOcean)
	for _, program := range []string{"luksFormat", "mkfs.ext4"} {
		t.Run(program, func(t *testing.T) {
			v := attach(t, n, vm.DigitalOcean, driverDO, "ext4", 1024*mib)
			staged := make(chan error, 1)
			go func() { staged <- v.stage() }()
			v.run("until grep -aqs '%[1]s.%[2]s' /proc/[0-9]*/cmdline; do :; done", program[:4], program[5:])
			check(t, n.Stop(t.Context(), "KILL"))
			<-staged
			check(t, n.Start(t.Context()))
			if err := v.stage(); err != nil {
				wantCode(t, "stage", err, codes.FailedPrecondition, "CB-FORMAT-UNFINISHED")
			}
			v.ok(v.unstage)
			v.free()
		})
	}
}

// TestVendorVolume: a volume that Linode's own driver encrypted, by its steps, opens, grows and mounts under that driver's
// name; and one that it has staged is taken over with a pod on it.
//
// Its steps: crypt_format of LUKS2 with sectors of 512 bytes, aes-xts-plain64, a key of 512 bits that is the first 64
// bytes of the secret itself, one key slot that the whole secret opens, a mapping that is named after the label.
func TestVendorVolume(t *testing.T) {
	const driver = "linodebs.csi.linode.com"
	n := node(t, vm.Linode, "--driver-name="+driver)
	v := attach(t, n, vm.Linode, driver, "ext4", 400*mib)
	label := v.disk.Name
	v.id = fmt.Sprintf("%d-%s", 4000+serial, label)
	v.context = map[string]string{
		driver + "/luks-encrypted": "true", driver + "/luks-cipher": "aes-xts-plain64", driver + "/luks-key-size": "512",
		driver + "/volume-name": label, "topology.linode.com/region": "eu-central",
		driver + "/device-name": v.disk.Link(),
	}
	v.run(`printf '%%s\n' '%[1]s' >/run/key; head -c 64 /run/key >/run/volumekey
		cryptsetup luksFormat --batch-mode --type luks2 --sector-size 512 --cipher aes-xts-plain64 --key-size 512 \
			--volume-key-file /run/volumekey --key-slot 0 --key-file /run/key %[2]s
		cryptsetup open --type luks2 --key-file /run/key %[2]s %[3]s
		mkfs.ext4 -q /dev/mapper/%[3]s
		mount /dev/mapper/%[3]s %[4]s; echo '%[5]s' >%[4]s/data
		rm /run/key /run/volumekey`, strings.TrimSpace(secret), v.kernel(), label, v.staging, clear)
	// Staged by the other driver, as when the programs change with pods running.
	v.ok(v.publish)
	v.wantClear(v.target)
	check(t, guest.Grow(t.Context(), v.disk, 600*mib))
	v.run("until [ $(blockdev --getsize64 %s) = %d ]; do sleep 0.1; done", v.kernel(), 600*mib)
	wantCode(t, "expand without the key", v.expand(""), codes.FailedPrecondition, "node-expand-secret-name")
	check(t, v.expand(secret))
	if got := v.size(); got < 500*mib {
		t.Errorf("the volume has %d bytes, want 600 MiB less what the header and the filesystem take", got)
	}
	v.ok(v.unpublish)
	// A program of the machine has it open for a moment.
	v.run("sleep 1000 </dev/mapper/%s >/dev/null 2>&1 & echo $! >/run/holder.pid", label)
	wantCode(t, "unstage of a mapping that is open", v.unstage(), codes.Aborted, "")
	v.run("kill $(cat /run/holder.pid); until [ $(dmsetup info -c --noheadings -o open %s) = 0 ]; do sleep 0.1; done", label)
	v.ok(v.unstage)
	v.free()
	// From now on by this driver alone.
	v.ok(v.stage, v.publish)
	v.wantClear(v.target)
	v.ok(v.unpublish, v.unstage)
	v.free()
}
