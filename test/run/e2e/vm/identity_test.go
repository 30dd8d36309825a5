//go:build vm

package vm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// link makes the link of the volume lead to the disk that the kernel calls so, as a udev that has missed an event
// leaves it.
func (v *volume) link(kernel string) {
	v.t.Helper()
	v.run("ln -sfn ../../%s /dev/disk/by-id/%s", kernel, v.disk.Link())
}

// stageWithout is stage of a volume whose disk is not there, by a caller that waits for it for a short time only.
func (v *volume) stageWithout() error {
	ctx, cancel := context.WithTimeout(v.t.Context(), 3*time.Second)
	defer cancel()
	_, err := v.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability(), VolumeContext: v.encoded(),
	})
	// The node program may work on the call for a moment after the caller has gone, and keeps other calls out.
	for ctx := within(v.t); ; {
		_, busy := v.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: vm.KubeletDir + "/pods/none"})
		if status.Code(busy) != codes.Aborted {
			return err
		}
	}
}

// wantNotThere wants the error of a disk that did not come in time. At the end of the time the caller may be faster
// than the answer.
func wantNotThere(t testing.TB, what string, err error) {
	t.Helper()
	if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
		t.Errorf("%s = %v (%v), want %v", what, code, err, codes.Unavailable)
	}
}

// wantServedBy wants the volume's target to be on this disk.
func (v *volume) wantServedBy(kernel string) {
	v.t.Helper()
	if got := v.servedBy(v.target); got != kernel {
		v.t.Errorf("volume %s is served by %s, want %s", v.id, got, kernel)
	}
}

// F3, F10: links are hints: a link that is wrong or missing leads to no wrong disk and keeps no volume from its own.
func TestLinksThatAreWrong(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		a, b := h.newVolume("ext4", 64*mib), h.newVolume("ext4", 64*mib)
		diskA, diskB := a.attach(), b.attach()
		set := map[string]func(){
			"stale":   func() { a.link(diskB) },
			"crossed": func() { a.link(diskB); b.link(diskA) },
			"dangling": func() {
				a.link("sdzz")
				b.link("vdzz")
			},
			"missing": func() { h.run("rm /dev/disk/by-id/%s /dev/disk/by-id/%s", a.disk.Link(), b.disk.Link()) },
		}
		var sums [2]string
		for _, name := range []string{"stale", "crossed", "dangling", "missing"} {
			a.link(diskA)
			b.link(diskB)
			set[name]()
			for i, v := range []*volume{a, b} {
				v.ok(v.stage, v.publish)
				v.wantServedBy([]string{diskA, diskB}[i])
				if sums[i] == "" {
					sums[i] = v.fill("data", mib)
				} else if got := v.sum("data"); got != sums[i] {
					t.Errorf("%s links: the file has checksum %s, want %s", name, got, sums[i])
				}
			}
			a.down()
			b.down()
		}
	})
}

// A8: a disk that is plugged in while stage waits for it is found, also where the link leads to a device without an
// identity until then.
func TestDiskThatComesDuringStage(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		v := h.newVolume("ext4", 64*mib)
		h.run("modprobe loop && test -e /sys/block/loop0")
		v.link("loop0")
		staged := make(chan error, 1)
		go func() { staged <- v.stage() }()
		must(t, h.guest.Plug(within(t), v.disk))
		expect.Kind(t, "stage", <-staged, fault.None)
		v.down()
	})
}

// F3, F4: the kernel gives a disk that comes again another name when its own is taken.
func TestSameLinkWithANewKernelName(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		v, other := h.newVolume("xfs", 320*mib), h.newVolume("", 64*mib)
		first := v.attach()
		v.ok(v.stage, v.publish)
		want := v.fill("data", mib)
		v.down()
		v.detach()
		if taken := other.attach(); taken != first {
			t.Fatalf("the other disk is %s, want %s", taken, first)
		}
		before := other.content()
		second := v.attach()
		v.ok(v.stage, v.publish)
		v.wantServedBy(second)
		if got := v.sum("data"); got != want || other.content() != before {
			t.Errorf("the file has checksum %s, want %s; or the other disk was changed", got, want)
		}
		v.down()
	})
}

// F12, A4: a disk that is taken away while its volume is used leaves a mount that is never used again, and that unstage
// removes.
func TestMountWhoseDiskIsGone(t *testing.T) {
	notShort(t)
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, fs := range kinds() {
			t.Run(kindName(fs), func(t *testing.T) {
				v := h.host(t, h.cloud).newVolume(fs, sizeFor(fs))
				v.attach()
				v.ok(v.stage, v.publish)
				want := ""
				if fs != "" {
					want = v.fill("data", mib)
				}
				v.detach()
				wantNotThere(t, "stage without the disk", v.stageWithout())
				first := v.target
				v.target += "-second"
				wantCode(t, "publish of a dead mount", v.publish(), codes.FailedPrecondition)
				v.ok(v.unpublish)
				v.target = first
				v.down()

				v.attach()
				v.ok(v.stage, v.publish)
				if fs != "" {
					v.wantSum("data", want)
				}
				v.down()
			})
		}
	})
}

// F12, A4: a disk that was taken away and came back, under another name, while its volume was staged: stage serves the
// new disk, and publish does not leave a pod on the old one.
func TestDiskThatCameBackWhileStaged(t *testing.T) {
	onEachCloud(t, func(t *testing.T, h *host) {
		for _, fs := range kinds() {
			t.Run(kindName(fs), func(t *testing.T) {
				v := h.host(t, h.cloud).newVolume(fs, sizeFor(fs))
				v.attach()
				v.ok(v.stage, v.publish)
				want := ""
				if fs != "" {
					want = v.fill("data", mib)
				}
				v.detach()
				second := v.attach()
				v.ok(v.stage, v.stage)
				wantCode(t, "publish over the target of the first disk", v.publish(), codes.AlreadyExists)
				v.ok(v.unpublish, v.publish)
				v.wantServedBy(second)
				if fs != "" {
					v.wantSum("data", want)
				}
				v.down()
			})
		}
	})
}

// F3: the machine's own disks have the cloud's bus, and other names: no request reaches them.
func TestTheMachinesOwnDiskIsNoVolume(t *testing.T) {
	h := sharedMachine(t, vm.DigitalOcean)
	v := h.newVolume("ext4", 64*mib)
	v.disk.Vendor, v.disk.Model = "QEMU", "HARDDISK"
	must(t, h.guest.Plug(within(t), v.disk))
	h.run("until grep -qs QEMU /sys/block/sd*/device/vendor; do sleep 0.1; done; udevadm settle")
	before := v.content()
	v.context.DeviceName = "scsi-0QEMU_HARDDISK_" + v.disk.Name
	if out := h.run("ls /dev/disk/by-id"); !strings.Contains(out, v.context.DeviceName) {
		t.Fatalf("there is no link %s:\n%s", v.context.DeviceName, out)
	}
	wantNotThere(t, "stage of a disk of the machine's own", v.stageWithout())
	if v.mounts() != "" || v.content() != before {
		t.Error("the disk was changed or is mounted")
	}
}
