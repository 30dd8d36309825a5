//go:build vm

package vm

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/test/vm"
)

// groupMachine boots a machine with the thin pool vg/thin on a disk of 1 GiB.
func groupMachine(t *testing.T) (h *host, group *vm.Disk) {
	t.Helper()
	m := boot(t)
	t.Cleanup(func() {
		m.guest.Kill()
		if err := os.RemoveAll(m.dir); err != nil {
			t.Error(err)
		}
	})
	h = &host{machine: m, t: t, cloud: "local"}
	disk, err := vm.NewDisk(m.dir, vm.Yandex, "group", gib)
	must(t, err)
	must(t, m.guest.Plug(within(t), disk))
	kernel, err := m.guest.WaitForLink(within(t), disk)
	must(t, err)
	h.run("vgcreate -qq -y vg /dev/%s && lvcreate -qq -y -l 90%%FREE -T vg/thin", kernel)
	return h, disk
}

// install brings a program into the guest, as /usr/local/bin/<name>, on a disk.
func (h *host) install(path, name string) {
	h.t.Helper()
	in, err := os.Open(path)
	must(h.t, err)
	defer func() { _ = in.Close() }()
	st, err := in.Stat()
	must(h.t, err)
	disk, err := vm.NewDisk(h.dir, vm.Yandex, "program", (st.Size()+mib-1)/mib*mib)
	must(h.t, err)
	out, err := os.OpenFile(disk.File, os.O_WRONLY, 0)
	must(h.t, err)
	_, err = io.Copy(out, in)
	must(h.t, err)
	must(h.t, out.Close())
	must(h.t, h.guest.Plug(within(h.t), disk))
	kernel, err := h.guest.WaitForLink(within(h.t), disk)
	must(h.t, err)
	h.run("head -c %d /dev/%s >/usr/local/bin/%[3]s && chmod 755 /usr/local/bin/%[3]s", st.Size(), kernel, name)
	must(h.t, h.guest.Unplug(within(h.t), disk))
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
	build := exec.Command("go", "test", "-c", "-tags", "vm", "-o", program, "../../../internal/cloud/local")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the suite: %v: %s", err, out)
	}
	h.install(program, "local.test")
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

// thinHost is a machine with both programs of the cloud "local".
type thinHost struct {
	*host
	group *vm.Disk // of the volume group
	csi.ControllerClient
}

const thinFlags = "--local-pool=lvm:vg/thin --node-id=n1"

func newThinHost(t *testing.T) *thinHost {
	t.Helper()
	h, group := groupMachine(t)
	h.install(filepath.Join(filepath.Dir(config.Node), "cloudblock-controller"), "cloudblock-controller")
	h.flags = strings.Fields(thinFlags)
	th := &thinHost{host: h.host(t, "local"), group: group}
	th.startController()
	return th
}

// startController starts the controller program and waits until it answers. As in a container it sees nothing of udev, and
// has semaphores of its own: a command of LVM that waited for udev would wait forever.
func (h *thinHost) startController() {
	h.t.Helper()
	socket := h.Folder() + "/controller.sock"
	h.run(`rm -f %[1]s
		setsid unshare --mount --ipc bash -c 'mount -t tmpfs none /run/udev && exec "$@"' - \
			cloudblock-controller --cloud=local --endpoint=unix://%[1]s %[2]s >>/run/node-local.log 2>&1 </dev/null &
		until [ -S %[1]s ]; do kill -0 $! || exit 1; sleep 0.1; done`, socket, thinFlags)
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) { return h.guest.Dial(ctx, path) }))
	must(h.t, err)
	h.t.Cleanup(func() { _ = conn.Close() })
	h.ControllerClient = csi.NewControllerClient(conn)
}

// create makes a volume from a snapshot, or a blank one.
func (h *thinHost) create(name, fs string, size int64, snapshot string) (*volume, error) {
	h.t.Helper()
	v := &volume{host: h.host, disk: &vm.Disk{Name: name}, fs: fs, staging: vm.KubeletDir + "/plugins/kubernetes.io/csi/" + name + "/globalmount",
		target: vm.KubeletDir + "/pods/" + name + "/volumes/mount"}
	req := &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{v.capability()}}
	content := driver.ContentBlank
	if snapshot != "" {
		content = driver.ContentCopy
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
		}}
	}
	made, err := h.CreateVolume(within(h.t), req)
	if err != nil {
		return nil, err
	}
	v.id = made.GetVolume().GetVolumeId()
	v.context = driver.VolumeContext{DeviceName: v.logical(), Size: made.GetVolume().GetCapacityBytes(), Content: content}
	h.run("mkdir -p %s $(dirname %s)", v.staging, v.target)
	return v, nil
}

// logical is the name of the volume's logical volume.
func (v *volume) logical() string { return "cloudblock-" + strings.TrimPrefix(v.id, "n1/") }

func (h *thinHost) mustCreate(name, fs string, size int64, snapshot string) *volume {
	h.t.Helper()
	v, err := h.create(name, fs, size, snapshot)
	must(h.t, err)
	return v
}

func (h *thinHost) snapshot(name string, v *volume) (string, error) {
	made, err := h.CreateSnapshot(within(h.t), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.id})
	return made.GetSnapshot().GetSnapshotId(), err
}

func (h *thinHost) delete(v *volume) error {
	_, err := h.DeleteVolume(within(h.t), &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

func (h *thinHost) capacity() int64 {
	h.t.Helper()
	answer, err := h.GetCapacity(within(h.t), &csi.GetCapacityRequest{})
	must(h.t, err)
	return answer.GetAvailableCapacity()
}

// The life of a volume in a thin pool: used, snapshotted and grown while it is mounted, restored, there after a reset.
func TestThinVolume(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newThinHost(t)
	h.run("vgchange -qq -an vg") // as after a boot of a node that does not activate it
	if _, err := h.ListVolumes(within(t), &csi.ListVolumesRequest{}); err != nil {
		t.Errorf("ListVolumes of a thin pool that is not active = %v", err)
	}
	v := h.mustCreate("life", "ext4", 64*mib, "")
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

	snapshot, err := h.snapshot("life", v)
	must(t, err)
	changed := v.fill("data", 2*mib)
	restored := h.mustCreate("restored", "ext4", 128*mib, snapshot)
	restored.ok(restored.stage, restored.publish)
	if got := restored.sum("data"); got != want {
		t.Errorf("the restored file has checksum %s, want %s", got, want)
	}
	if got := restored.usable(); got < 100*mib {
		t.Errorf("the restored filesystem has %d bytes, want about 128 MiB", got)
	}
	restored.down()
	must(t, h.delete(restored))

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
	if got := h.run("ls /sys/block/*/dm/name | xargs grep cloudblock || true"); got != "" {
		t.Errorf("active after a reset: %s", got)
	}
	must(t, h.Start(within(t)))
	h.startController()
	v.ok(v.stage, v.publish)
	if got := v.sum("data"); got != changed {
		t.Errorf("after a reset the file has checksum %s, want %s", got, changed)
	}
	v.down()
	must(t, h.delete(v))
	if got := h.run("lvs --noheadings -o lv_name -S 'lv_name=~cloudblock' vg"); !strings.Contains(got, "snap") || strings.Contains(got, v.logical()) {
		t.Errorf("the volume group has %s, want the snapshot alone", got)
	}
}

// Every volume and its snapshot can be written in full, and shows nothing of what a deleted one had.
func TestThinPoolIsWrittenInFull(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newThinHost(t)
	whole := h.capacity()
	a := h.mustCreate("a", "", 128*mib, "")
	a.ok(a.stage, a.publish)
	write := func(v *volume, size int64, what string) {
		t.Helper()
		h.run("tr '\\0' %s </dev/zero | dd of=%s bs=1M count=%d iflag=fullblock oflag=direct conv=fsync status=none", what, v.target, size/mib)
	}
	write(a, 128*mib, "a")
	snapshot, err := h.snapshot("a", a)
	must(t, err)
	if got := h.capacity(); got != whole-256*mib {
		t.Errorf("capacity with a volume and its snapshot = %d, want %d", got, whole-256*mib)
	}
	rest := h.mustCreate("rest", "", h.capacity(), "")
	_, err = h.create("more", "", 16*mib, "")
	wantCode(t, "CreateVolume in a full pool", err, codes.ResourceExhausted)
	_, err = h.create("copy", "", 128*mib, snapshot)
	wantCode(t, "a restore in a full pool", err, codes.ResourceExhausted)
	_, err = h.snapshot("more", a)
	wantCode(t, "CreateSnapshot in a full pool", err, codes.ResourceExhausted)
	_, err = a.expand(132 * mib)
	wantCode(t, "expand in a full pool", err, codes.OutOfRange)

	rest.ok(rest.stage, rest.publish)
	write(rest, rest.context.Size, "r")
	write(a, 128*mib, "b") // the snapshot keeps the old chunks
	for _, v := range []*volume{a, rest} {
		v.down()
	}
	if got := h.run("lvs --noheadings -o data_percent,lv_health_status vg/thin"); !strings.HasPrefix(got, "100") && !strings.HasPrefix(got, "99") {
		t.Errorf("the thin pool is %s, want it to be full and healthy", got)
	}
	must(t, h.delete(rest))
	next := h.mustCreate("next", "", 512*mib, "")
	next.ok(next.stage, next.publish)
	h.run("cmp -n %d %s /dev/zero", 512*mib, next.target)
	h.run("printf x | dd of=%s bs=1 seek=70000 conv=notrunc status=none; sync", next.target)
	if got := h.run("tr -d '\\0' <%s | wc -c", next.target); got != "1" {
		t.Errorf("after one byte was written, %s bytes are not zero", got)
	}
	next.down()
}

// A volume of a thin pool is encrypted, grows while it is mounted, and its snapshot opens with the same key.
func TestEncryptedThinVolume(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newThinHost(t)
	encrypted := func(name string, size int64, snapshot string) *volume {
		v := h.mustCreate(name, "ext4", size, snapshot)
		v.context.LUKS, v.secrets = true, map[string]string{"luksKey": "correct horse battery staple"}
		return v
	}
	v := encrypted("secret", 64*mib, "")
	v.ok(v.stage, v.stage, v.publish)
	want := v.fill("data", mib)
	if got := h.run("cat /sys/block/%s/dm/uuid", v.servedBy(v.target)); !strings.HasPrefix(got, "CRYPT-LUKS2") {
		t.Errorf("the filesystem is on the device %s", got)
	}
	snapshot, err := h.snapshot("secret", v)
	must(t, err)
	if got, err := v.expand(128 * mib); got != 128*mib || err != nil {
		t.Errorf("expand = %d, %v", got, err)
	}
	if got := v.usable(); got < 90*mib {
		t.Errorf("the grown filesystem has %d bytes, want about 110 MiB", got)
	}
	v.down()
	restored := encrypted("restored", 64*mib, snapshot)
	for _, each := range []*volume{v, restored} {
		each.ok(each.stage, each.publish)
		if got := each.sum("data"); got != want {
			t.Errorf("the file of %s has checksum %s, want %s", each.id, got, want)
		}
		each.down()
		if got := h.run("ls /sys/block/*/dm/uuid | xargs grep -l CRYPT || true"); got != "" {
			t.Errorf("open after unstage: %s", got)
		}
		must(t, h.delete(each))
	}
}

// Without its disk the pool is missing, and not empty.
func TestThinPoolWithoutItsDisk(t *testing.T) {
	notShort(t)
	t.Parallel()
	h := newThinHost(t)
	v := h.mustCreate("lost", "ext4", 64*mib, "")
	h.run("vgchange -qq -an vg")
	must(t, h.guest.Unplug(within(t), h.group))
	wantCode(t, "DeleteVolume", h.delete(v), codes.FailedPrecondition)
	wantCode(t, "NodeStageVolume", v.stage(), codes.FailedPrecondition)
	_, err := h.create("other", "ext4", 64*mib, "")
	wantCode(t, "CreateVolume", err, codes.Unavailable)
	if got := h.capacity(); got != 0 {
		t.Errorf("capacity = %d, want 0", got)
	}
}
