//go:build vm

package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

func (h *host) limit() int64 {
	h.t.Helper()
	info, err := h.NodeGetInfo(within(h.t), &csi.NodeGetInfoRequest{})
	must(h.t, err)
	return info.GetMaxVolumesPerNode()
}

// restart ends the node program and starts it again.
func (h *host) restart() {
	h.t.Helper()
	must(h.t, h.Stop(within(h.t), "TERM"))
	must(h.t, h.Start(within(h.t)))
}

// plugOwn plugs in a disk of the machine's own, on the cloud's bus.
func (h *host) plugOwn(n int) {
	h.t.Helper()
	disk, err := vm.NewDisk(h.dir, h.cloud, fmt.Sprintf("own-%d", n), 16*mib)
	must(h.t, err)
	disk.Vendor, disk.Model = "QEMU", "HARDDISK"
	must(h.t, h.guest.Plug(within(h.t), disk))
}

// A5, A6: the limit counts the machine's own disks and not the volumes, is never 0, and is the same after a restart of the node
// program.
func TestLimit(t *testing.T) {
	notShort(t)
	for _, tc := range []struct {
		cloud       string
		want, local int64 // without and with two disks of the machine's own
		many        int   // disks of the machine's own that leave no place
	}{
		{vm.DigitalOcean, 15, 15, 0}, // whatever the machine has
		{vm.Linode, 16, 14, 15},      // 16 GiB of memory
		{vm.Yandex, 8, 6, 7},
	} {
		t.Run(tc.cloud, func(t *testing.T) {
			t.Parallel()
			h := ownMachine(t, tc.cloud)
			wantLimit := func(when string, want int64) {
				t.Helper()
				if got := h.limit(); got != want {
					t.Errorf("%s: the limit is %d, want %d", when, got, want)
				}
				h.restart()
				if got := h.limit(); got != want {
					t.Errorf("%s, after a restart: the limit is %d, want %d", when, got, want)
				}
			}
			wantLimit("an empty machine", tc.want)
			for i := range 2 {
				h.plugOwn(i)
			}
			h.run("until [ $(ls -d /sys/block/[sv]d* | wc -l) = 2 ]; do sleep 0.1; done; udevadm settle")
			wantLimit("two disks of its own", tc.local)
			a, b := h.newVolume("ext4", 64*mib), h.newVolume("", 64*mib)
			a.attach()
			b.attach()
			wantLimit("with two volumes attached", tc.local)
			a.ok(a.stage, a.publish)
			b.ok(b.stage, b.publish)
			wantLimit("with two volumes in use", tc.local)
			a.down()
			b.down()
			if tc.many == 0 {
				return
			}
			for i := 2; i < tc.many+2; i++ {
				h.plugOwn(i)
			}
			h.run("until [ $(ls -d /sys/block/[sv]d* | wc -l) = %d ]; do sleep 0.1; done; udevadm settle", tc.many+4)
			wantLimit("without a place", 1)
		})
	}
}

// A5: the machine's identity is in its SMBIOS where the region has no metadata service.
func TestIdentityWithoutTheMetadataService(t *testing.T) {
	for _, cloud := range []string{vm.DigitalOcean, vm.Linode} {
		t.Run(cloud, func(t *testing.T) {
			h := sharedMachine(t, cloud)
			must(t, h.Stop(within(t), "TERM"))
			h.run("mv /run/metadata /run/metadata-away")
			t.Cleanup(func() {
				must(t, h.Stop(within(t), "TERM"))
				h.run("rm -rf /run/metadata; mv /run/metadata-away /run/metadata")
				must(t, h.Start(within(t)))
			})
			must(t, h.StartWith(within(t), "--zone=fra1"))
			info, err := h.NodeGetInfo(within(t), &csi.NodeGetInfoRequest{})
			if err != nil || info.GetNodeId() != vm.MachineID || info.GetMaxVolumesPerNode() < 1 {
				t.Errorf("NodeGetInfo = %v, %v, want the machine %s", info, err, vm.MachineID)
			}
			log, err := h.Log(within(t))
			if err != nil || !strings.Contains(log, "using the fallback") {
				t.Errorf("the log does not mention the fallback (%v)", err)
			}
		})
	}
}
