//go:build vm

package vm

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// usable returns the size of the filesystem at the volume's target.
func (v *volume) usable() (size int64) {
	v.t.Helper()
	return v.number("df --output=size -B1 %s | tail -n 1", v.target)
}

// E3, E5: if a disk grows while its volume is used, NodeExpandVolume grows the mounted filesystem.
func TestGrowthOfAMountedVolume(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, fs := range kinds() {
			t.Run(kindName(fs), func(t *testing.T) { growInUse(t, h, fs) })
		}
	})
}

// growInUse brings up a volume, and grows it while it is used.
func growInUse(t *testing.T, h *host, fs string) {
	size := sizeFor(fs)
	v := h.host(t, h.cloud).newVolume(fs, size)
	kernel := v.attach()
	v.ok(v.stage, v.stage, v.publish, v.publish)
	want, before := "", int64(0)
	if fs != "" {
		want, before = v.fill("data", mib), v.usable()
	}
	must(t, v.guest.Grow(within(t), v.disk, 2*size))
	v.run("until [ $(blockdev --getsize64 /dev/%s) = %d ]; do sleep 0.1; done", kernel, 2*size)
	for range 2 {
		if got, err := v.expand(2 * size); err != nil || got != 2*size {
			t.Fatalf("expand = %d, %v, want %d", got, err, 2*size)
		}
	}
	if fs == "" {
		if got := v.number("blockdev --getsize64 %s", v.target); got != 2*size {
			t.Errorf("the raw device has %d bytes, want %d", got, 2*size)
		}
		v.run("head -c 1M /dev/urandom | dd of=%s bs=1M iflag=fullblock conv=fsync status=none", v.target)
		v.down()
		return
	}
	if after := v.usable(); after < before+size*9/10 {
		t.Errorf("the filesystem had %d bytes and has %d, want about %d more", before, after, size)
	}
	v.wantSum("data", want)
	v.down()
}

// E8: an ext4 whose journal is too small for its growth stays as it is. The expansion says why, and the next pod gets the volume.
func TestGrowthThatTheKernelRefuses(t *testing.T) {
	notShort(t)
	const size = 8192 * mib
	v := sharedMachine(t, vm.DigitalOcean).newVolume("ext4", size)
	v.context.MkfsOptions = []string{"-J", "size=4"}
	kernel := v.attach()
	v.ok(v.stage, v.publish)
	want, before := v.fill("data", mib), v.usable()
	must(t, v.guest.Grow(within(t), v.disk, 2*size))
	v.run("until [ $(blockdev --getsize64 /dev/%s) = %d ]; do sleep 0.1; done", kernel, 2*size)
	if _, err := v.expand(2 * size); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no space left on device") {
		t.Fatalf("expand = %v, want the kernel's refusal", err)
	}
	v.ok(v.unpublish, v.unstage, v.stage, v.publish)
	if got := v.sum("data"); got != want || v.usable() != before {
		t.Errorf("the next pod has the checksum %s and %d bytes, want %s and %d", got, v.usable(), want, before)
	}
	v.down()
}
