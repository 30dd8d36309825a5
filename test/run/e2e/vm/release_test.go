//go:build vm

package vm

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// releaseMachine boots a machine of another release of Debian for this test alone.
func releaseMachine(t *testing.T, suite, kernel string) *host {
	t.Helper()
	cfg := config
	var err error
	cfg.Image, err = image(suite)
	must(t, err)
	cfg.Kernel = kernel
	m, err := bootWith(t, cfg)
	must(t, err)
	m.endWith(t)
	h := &host{machine: m, t: t, cloud: vm.DigitalOcean}
	t.Logf("Linux %s", h.run("uname -r"))
	return h
}

// F12: Debian 11 has Linux 5.10, which has no mount_setattr. The node program ends at its start and says so, before the
// kubelet could register it.
func TestKernelThatIsTooOld(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := releaseMachine(t, "bullseye", "")
	for _, cloud := range profile.Names() {
		flags := "--cloud=" + cloud
		if cloud == "local" {
			flags += " --local-pool=/var/lib/pool --node-id=a"
		}
		out, err := h.guest.Run(within(t), fmt.Sprintf("mkdir -p /var/lib/kubelet/pods; cloudblock-node --endpoint=unix:///run/csi.sock %s; code=$?; ls /run/csi.sock; exit $code", flags))
		var ended *vm.ExitError
		if !errors.As(err, &ended) || ended.Code != 1 || !strings.Contains(out, "needs Linux 5.12 or newer") || !strings.Contains(out, "No such file") {
			t.Errorf("cloudblock-node %s = %v\n%s", flags, err, out)
		}
	}
}

// E5: the test runs the node program where a disk that is mounted cannot be opened for writing, and one that is open for
// writing cannot be mounted: bdev_allow_write_mounted=0, since Linux 6.8.
func TestKernelThatProtectsMountedDisks(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := releaseMachine(t, "trixie", "bdev_allow_write_mounted=0")
	h.run("disk=$(findmnt -n -o SOURCE /); ! (: 1<>$disk) && : <$disk")
	for _, fs := range kinds() {
		t.Run(kindName(fs), func(t *testing.T) { growInUse(t, h, fs) })
	}
	encrypted := h.host(t, h.cloud).newVolume("ext4", sizeFor("ext4"))
	encrypted.context.LUKS, encrypted.secrets = true, map[string]string{driver.SecretLUKS: "correct horse"}
	encrypted.attach()
	encrypted.ok(encrypted.stage, encrypted.stage, encrypted.publish)
	encrypted.down()

	disk, err := vm.NewDisk(t.TempDir(), vm.Yandex, "pool", 2*gib)
	must(t, err)
	pool := h.withPool(t, disk, "mkfs.xfs -q -m reflink=1 $disk")
	for _, fs := range kinds() {
		size := sizeFor(fs)
		v, err := pool.create("pvc-"+kindName(fs), size, nil)
		must(t, err)
		v.fs = fs
		v.ok(v.stage, v.stage, v.publish)
		for range 2 {
			if got, err := v.expand(2 * size); err != nil || got != 2*size {
				t.Errorf("expand of local %s = %d, %v, want %d", kindName(fs), got, err, 2*size)
			}
		}
		v.down()
	}
}
