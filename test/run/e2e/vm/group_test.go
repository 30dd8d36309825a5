//go:build vm

package vm

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// groupMachine boots a machine with the volume group vg on a disk of 1 GiB, every byte of which somebody has written.
func groupMachine(t *testing.T) (h *host, group *vm.Disk) {
	t.Helper()
	m := boot(t)
	m.endWith(t)
	h = &host{machine: m, t: t, cloud: "local"}
	disk, err := vm.NewDisk(m.dir, vm.Yandex, "group", gib)
	must(t, err)
	must(t, m.guest.Plug(within(t), disk))
	kernel, err := m.guest.WaitForLink(within(t), disk)
	must(t, err)
	h.run("tr '\\0' T </dev/zero | dd of=/dev/%[1]s bs=4M iflag=fullblock oflag=direct status=none || true", kernel)
	h.run("vgcreate -qq -y vg /dev/%[1]s && mkdir -p /etc/lvm/devices && lvm lvmdevices -y --devicesfile cloudblock-vg --adddev /dev/%[1]s", kernel)
	return h, disk
}

// contractOnLVM are the parts of the contract suite that depend most on LVM. With CONTRACT=. in the environment all of it
// runs, which takes 20 minutes; over a stand-in for LVM it runs with the unit tests.
const contractOnLVM = "^(Capacity|Copies|DeleteVolume|Health)$"

// TestContractOnLVM runs the contract suite in the guest, where there is a device-mapper.
func TestContractOnLVM(t *testing.T) {
	notShort(t)
	t.Parallel()
	h, _ := groupMachine(t)
	program := filepath.Join(h.dir, "local.test")
	build := exec.Command("go", "test", "-c", "-tags", "vm", "-o", program, "../../../../internal/cloud/local")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v: %s", err, out)
	}
	must(t, h.guest.Install(within(t), program))
	ctx, cancel := context.WithTimeout(t.Context(), 6*patience)
	defer cancel()
	parts := cmp.Or(os.Getenv("CONTRACT"), contractOnLVM)
	out, err := h.guest.Run(ctx, "cd /tmp && local.test -test.v -test.run '^TestContractOnLVM$/"+parts+"' -test.timeout 30m")
	if err != nil || !strings.Contains(out, "--- PASS: TestContractOnLVM") {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "    --- PASS") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// groupHost is a machine with both programs of the cloud "local".
type groupHost struct {
	*host
	group *vm.Disk // of the volume group
	csi.ControllerClient
}

const groupFlags = "--local-pool=lvm:vg --node-id=n1"

func newGroupHost(t *testing.T) *groupHost {
	t.Helper()
	h, group := groupMachine(t)
	must(t, h.guest.Install(within(t), filepath.Join(filepath.Dir(config.Node), "cloudblock-controller")))
	h.flags = strings.Fields(groupFlags)
	th := &groupHost{host: h.host(t, "local"), group: group}
	th.startController()
	return th
}

// startController starts the controller program and waits until it answers. As in a container it sees nothing of udev, has
// semaphores of its own (a command of LVM that waited for udev would wait forever), and all that it has started ends with it. As
// there too, it keeps no mount of a volume that the machine has unmounted.
func (h *groupHost) startController() {
	h.t.Helper()
	socket := h.Folder() + "/controller.sock"
	h.run(`rm -f %[1]s
		setsid unshare --mount-proc --propagation slave --ipc --pid --fork bash -c 'mount -t tmpfs none /run/udev && exec "$@"' - \
			cloudblock-controller --cloud=local --endpoint=unix://%[1]s %[2]s >>/run/node-local.log 2>&1 </dev/null &
		until [ -S %[1]s ]; do kill -0 $! || exit 1; sleep 0.1; done`, socket, groupFlags)
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return h.guest.Dial(ctx, path) }))
	must(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	h.ControllerClient = csi.NewControllerClient(conn)
}

// create makes a volume.
func (h *groupHost) create(name, fs string, size int64) (*volume, error) {
	h.t.Helper()
	v := h.volumeNamed(name, fs)
	made, err := h.CreateVolume(within(h.t), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{v.capability()},
	})
	if err != nil {
		return nil, err
	}
	v.id = made.GetVolume().GetVolumeId()
	v.context = driver.VolumeContext{DeviceName: v.logical(), Size: made.GetVolume().GetCapacityBytes(), Content: driver.ContentBlank}
	return v, nil
}

// logical is the name of the volume's logical volume.
func (v *volume) logical() string { return "cloudblock-" + path.Base(v.id) }

func (h *groupHost) mustCreate(name, fs string, size int64) *volume {
	h.t.Helper()
	v, err := h.create(name, fs, size)
	must(h.t, err)
	return v
}

func (h *groupHost) delete(v *volume) error {
	_, err := h.DeleteVolume(within(h.t), &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

func (h *groupHost) capacity() int64 {
	h.t.Helper()
	answer, err := h.GetCapacity(within(h.t), &csi.GetCapacityRequest{})
	must(h.t, err)
	return answer.GetAvailableCapacity()
}

// The life of a volume in a volume group: used and grown while it is mounted, there after a kill and after a reset.
func TestGroupVolume(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	const archived = "ls /etc/lvm/archive 2>/dev/null || true"
	before := h.run(archived)
	v := h.mustCreate("life", "ext4", 64*mib)
	v.ok(v.stage, v.stage, v.publish)
	want := v.fill("data", mib)
	if got := h.run("cat /sys/block/%s/dm/name", v.servedBy(v.target)); got != "vg-"+strings.ReplaceAll(v.logical(), "-", "--") {
		t.Errorf("the volume is on the device %s", got)
	}
	wantCode(t, "DeleteVolume of a staged volume", h.delete(v), codes.FailedPrecondition)
	if out, err := h.guest.Run(within(t), "head -c 100M /dev/zero >"+v.target+"/more && sync -f "+v.target); err == nil {
		t.Errorf("more was written than the volume has: %s", out)
	}
	h.run("rm %s/more", v.target)
	_, err := h.CreateSnapshot(within(t), &csi.CreateSnapshotRequest{Name: "life", SourceVolumeId: v.id})
	wantCode(t, "CreateSnapshot", err, codes.InvalidArgument)
	if got, err := v.expand(128 * mib); got != 128*mib || err != nil {
		t.Errorf("expand = %d, %v", got, err)
	}
	if got := v.usable(); got < 100*mib {
		t.Errorf("the grown filesystem has %d bytes, want about 128 MiB", got)
	}
	_, err = v.expand(2 * gib)
	wantCode(t, "expand to more than the pool has", err, codes.OutOfRange)

	must(t, h.Stop(within(t), "KILL"))
	must(t, h.Start(within(t)))
	v.ok(v.stage, v.publish, v.unpublish)
	h.run("sync")
	must(t, h.guest.Reset(within(t)))
	if got := h.run("cat /sys/block/*/dm/name 2>/dev/null | grep cloudblock || true"); got != "" {
		t.Errorf("active after a reset: %s", got)
	}
	must(t, h.Start(within(t)))
	h.startController()
	v.ok(v.stage, v.publish)
	v.wantSum("data", want)
	v.down()
	must(t, h.delete(v))
	if got := h.run("lvs --noheadings -o lv_name vg"); got != "" {
		t.Errorf("the volume group has %s, want nothing", got)
	}
	if got := h.run(archived); got != before {
		t.Errorf("archived in /etc/lvm are %q, want what was there before, %q", got, before)
	}
}

// L13: nobody sees what others had: neither a new raw block volume nor what a growth adds to it, on a disk full of a
// pattern.
func TestGroupVolumesShowNothingOfOthers(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	pattern := h.number("dd if=/dev/disk/by-id/virtio-group bs=1M count=16 skip=500 status=none | tr -dc T | wc -c")
	if pattern != 16*mib {
		t.Fatalf("the disk has %d bytes of the pattern in 16 MiB", pattern)
	}
	zeros := func(v *volume, size int64) {
		t.Helper()
		h.run("cmp -n %d %s /dev/zero", size, v.target)
	}
	whole := h.capacity()
	v := h.mustCreate("raw", "", 512*mib)
	if got := h.capacity(); got != whole-512*mib {
		t.Errorf("capacity = %d, want %d", got, whole-512*mib)
	}
	v.ok(v.stage, v.publish)
	zeros(v, 512*mib)
	if got, err := v.expand(640 * mib); got != 640*mib || err != nil {
		t.Errorf("expand = %d, %v", got, err)
	}
	if got := h.number("blockdev --getsize64 /dev/%s", v.servedBy(v.target)); got != 640*mib {
		t.Errorf("the device has %d bytes, want 640 MiB", got)
	}
	zeros(v, 640*mib)
	h.run("tr '\\0' a </dev/zero | dd of=%s bs=4M count=160 iflag=fullblock oflag=direct conv=fsync status=none", v.target)
	v.down()
	must(t, h.delete(v))
	next := h.mustCreate("next", "", h.capacity())
	_, err := h.create("more", "", 16*mib)
	wantCode(t, "CreateVolume in a full pool", err, codes.ResourceExhausted)
	next.ok(next.stage, next.publish)
	zeros(next, next.context.Size)
	next.down()
	must(t, h.delete(next))
}

// A volume of a volume group is encrypted, and grows while it is mounted.
func TestEncryptedGroupVolume(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	v := h.mustCreate("secret", "ext4", 64*mib)
	v.context.LUKS, v.secrets = true, map[string]string{"luksKey": "correct horse battery staple"}
	v.ok(v.stage, v.stage, v.publish)
	want := v.fill("data", mib)
	if got := h.run("cat /sys/block/%s/dm/uuid", v.servedBy(v.target)); !strings.HasPrefix(got, "CRYPT-LUKS2") {
		t.Errorf("the filesystem is on the device %s", got)
	}
	if got, err := v.expand(128 * mib); got != 128*mib || err != nil {
		t.Errorf("expand = %d, %v", got, err)
	}
	if got := v.usable(); got < 90*mib {
		t.Errorf("the grown filesystem has %d bytes, want about 110 MiB", got)
	}
	v.down()
	v.ok(v.stage, v.publish)
	v.wantSum("data", want)
	v.down()
	if got := h.run("cat /sys/block/*/dm/uuid 2>/dev/null | grep CRYPT || true"); got != "" {
		t.Errorf("open after unstage: %s", got)
	}
	must(t, h.delete(v))
}

// C14: the volumes on the disks that are there are served while another disk of the group is missing. Disks come and go
// as the page says.
func TestGroupWithoutOneOfItsDisks(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	first, err := h.guest.WaitForLink(within(t), h.group)
	must(t, err)
	there := h.mustCreate("there", "ext4", 64*mib)
	h.run("lvcreate -qq -y -an -Wn -Zn -n filler -l 100%%PVS vg /dev/%s", first)
	second, err := vm.NewDisk(h.dir, vm.Yandex, "second", 256*mib)
	must(t, err)
	must(t, h.guest.Plug(within(t), second))
	kernel, err := h.guest.WaitForLink(within(t), second)
	must(t, err)
	h.run("vgextend -qq -y --devicesfile cloudblock-vg vg /dev/%s", kernel)
	lost := h.mustCreate("lost", "ext4", 64*mib)
	if on := h.run("lvs --noheadings -o devices vg/%s", lost.logical()); !strings.Contains(on, kernel) {
		t.Fatalf("it is on %s, the second disk is %s", on, kernel)
	}
	there.ok(there.stage, there.publish)
	sum := there.fill("data", mib)
	must(t, h.guest.Unplug(within(t), second))
	wantCode(t, "NodeStageVolume of a volume on it", lost.stage(), codes.FailedPrecondition)
	there.ok(there.unpublish, there.unstage, there.stage, there.publish)
	there.wantSum("data", sum)
	if _, err := h.create("other", "ext4", 64*mib); err == nil {
		t.Error("CreateVolume succeeded")
	}
	if got := h.capacity(); got != 0 {
		t.Errorf("capacity = %d, want 0", got)
	}
	if err := h.delete(lost); err == nil {
		t.Error("DeleteVolume succeeded")
	}
	must(t, h.guest.Plug(within(t), second))
	kernel, err = h.guest.WaitForLink(within(t), second)
	must(t, err)
	lost.ok(lost.stage, lost.publish)
	lost.down()
	must(t, h.delete(lost))
	h.run("pvchange -qq -xn --devicesfile cloudblock-vg /dev/%s", kernel) // drained by an operator; the other one is full
	_, err = h.create("other", "ext4", 64*mib)
	wantCode(t, "CreateVolume", err, codes.ResourceExhausted)
	if got := h.capacity(); got != 0 {
		t.Errorf("capacity = %d, want 0", got)
	}
}

// C14: without its disk the pool is missing, and not empty.
func TestGroupWithoutItsDisk(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newGroupHost(t)
	v := h.mustCreate("lost", "ext4", 64*mib)
	must(t, h.guest.Unplug(within(t), h.group))
	wantCode(t, "DeleteVolume", h.delete(v), codes.FailedPrecondition)
	wantCode(t, "NodeStageVolume", v.stage(), codes.FailedPrecondition)
	_, err := h.create("other", "ext4", 64*mib)
	wantCode(t, "CreateVolume", err, codes.Unavailable)
	if got := h.capacity(); got != 0 {
		t.Errorf("capacity = %d, want 0", got)
	}
}
