//go:build vm

package vm

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/profile"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

// volume is a volume, its disk and the paths that a kubelet would use for it.
type volume struct {
	*host
	disk            *vm.Disk
	id, fs          string // fs is empty for a raw block volume
	staging, target string
	// context is the volume context, secrets are those of the class; a test may change both.
	context driver.VolumeContext
	secrets map[string]string
}

// minted counts the names of disks.
var minted atomic.Int64

// newVolume makes a volume and its disk, which is not plugged in.
func (h *host) newVolume(fs string, size int64) *volume {
	h.t.Helper()
	n := minted.Add(1)
	name := fmt.Sprintf("pvc-%04d", n)
	if h.cloud == vm.Yandex {
		name = fmt.Sprintf("fhmdisk%013d", n) // 20 characters, as a disk's id
	}
	disk, err := vm.NewDisk(h.dir, h.cloud, name, size)
	must(h.t, err)
	return h.volumeOn(disk, fs, size)
}

// volumeOn returns the volume whose disk this is.
func (h *host) volumeOn(disk *vm.Disk, fs string, size int64) *volume {
	h.t.Helper()
	v := h.volumeNamed(disk.Name, fs)
	v.disk, v.id = disk, "volume-"+disk.Name
	v.context = driver.VolumeContext{DeviceName: disk.Link(), Serial: disk.Name, Size: size, Content: driver.ContentBlank}
	h.t.Cleanup(v.remove)
	return v
}

// volumeNamed returns a volume without an id, and makes the folders of the paths that a kubelet would use for it.
func (h *host) volumeNamed(name, fs string) *volume {
	h.t.Helper()
	v := &volume{
		host: h, disk: &vm.Disk{Name: name}, fs: fs,
		staging: vm.KubeletDir + "/plugins/kubernetes.io/csi/" + name + "/globalmount",
		target:  vm.KubeletDir + "/pods/" + name + "/volumes/mount",
	}
	h.run("mkdir -p %s $(dirname %s)", v.staging, v.target)
	return v
}

// remove takes everything of the volume out of the guest, whatever the test did.
func (v *volume) remove() {
	ctx := within(v.t)
	if !v.guest.Running() {
		return
	}
	_, _ = v.guest.Run(ctx, fmt.Sprintf(
		"for path in $(awk '$5 ~ \"/%[1]s(/|$)\" { print $5 }' /proc/self/mountinfo | tac); do umount -l $path; done; "+
			"rm -f %[2]s/volumes/*%[3]s*", v.disk.Name, v.Folder(), v.id))
	if v.guest.Plugged(v.disk) {
		if err := v.guest.Unplug(ctx, v.disk); err != nil {
			v.t.Error(err)
		}
	}
	if err := os.Remove(v.disk.File); err != nil {
		v.t.Error(err)
	}
}

// attach plugs the disk in and waits for its link. It returns the kernel's name of it.
func (v *volume) attach() string {
	v.t.Helper()
	must(v.t, v.guest.Plug(within(v.t), v.disk))
	kernel, err := v.guest.WaitForLink(within(v.t), v.disk)
	must(v.t, err)
	return kernel
}

// detach unplugs the disk, whatever the guest does with it.
func (v *volume) detach() {
	v.t.Helper()
	must(v.t, v.guest.Unplug(within(v.t), v.disk))
}

func (v *volume) capability() *csi.VolumeCapability {
	return programs.Claim{Filesystem: v.fs}.Capability()
}

func (v *volume) encoded() map[string]string {
	return v.names().EncodeVolumeContext(v.context)
}

// names are those of the host's driver.
func (h *host) names() driver.Names {
	h.t.Helper()
	is, _ := profile.Of(h.cloud)
	names, err := driver.NewNames(h.cloud, is.Scope, "", nil)
	must(h.t, err)
	return names
}

func (v *volume) stage() error {
	_, err := v.NodeStageVolume(within(v.t), &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, VolumeCapability: v.capability(), VolumeContext: v.encoded(), Secrets: v.secrets,
	})
	return err
}

func (v *volume) publish() error {
	_, err := v.NodePublishVolume(within(v.t), &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging, TargetPath: v.target, VolumeCapability: v.capability(), VolumeContext: v.encoded(),
	})
	return err
}

func (v *volume) unpublish() error {
	_, err := v.NodeUnpublishVolume(within(v.t), &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target})
	return err
}

func (v *volume) unstage() error {
	_, err := v.NodeUnstageVolume(within(v.t), &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging})
	return err
}

func (v *volume) expand(size int64) (int64, error) {
	answer, err := v.NodeExpandVolume(within(v.t), &csi.NodeExpandVolumeRequest{
		VolumeId: v.id, VolumePath: v.target, StagingTargetPath: v.staging, VolumeCapability: v.capability(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, Secrets: v.secrets,
	})
	return answer.GetCapacityBytes(), err
}

// ok runs steps of a volume's life that must succeed.
func (v *volume) ok(steps ...func() error) {
	v.t.Helper()
	for i, step := range steps {
		if err := step(); err != nil {
			v.t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

// down unpublishes and unstages the volume, each twice, and wants no mount of it to be left.
func (v *volume) down() {
	v.t.Helper()
	v.ok(v.unpublish, v.unpublish, v.unstage, v.unstage)
	if left := v.mounts(); left != "" {
		v.t.Errorf("mounted after unstage:\n%s", left)
	}
}

// mounts returns the lines of the guest's mount table that are the volume's.
func (v *volume) mounts() string {
	v.t.Helper()
	return v.run("awk '$5 ~ \"/%s(/|$)\"' /proc/self/mountinfo", v.disk.Name)
}

// servedBy returns the kernel's name of the disk that a path of the volume is on.
func (v *volume) servedBy(path string) string {
	v.t.Helper()
	number := "%d" // of the filesystem
	if v.fs == "" {
		number = "%r" // of the device node
	}
	return v.run(`n=$(stat -c %[2]s %[1]s); basename $(readlink -f /sys/dev/block/$((n >> 8 & 0xfff)):$((n & 0xff | n >> 12 & 0xfff00)))`, path, number)
}

// fill writes n bytes of random data to a file of the published volume, syncs it, and returns its checksum.
func (v *volume) fill(name string, n int64) string {
	v.t.Helper()
	return v.run(`head -c %[1]d /dev/urandom >%[2]s/%[3]s && sync -f %[2]s/%[3]s && sha256sum <%[2]s/%[3]s`, n, v.target, name)
}

// sum returns the checksum of a file of the published volume.
func (v *volume) sum(name string) string {
	v.t.Helper()
	return v.run("sha256sum <%s/%s", v.target, name)
}

// wantSum wants a file of the published volume to have the checksum that fill has returned.
func (v *volume) wantSum(name, want string) {
	v.t.Helper()
	if got := v.sum(name); got != want {
		v.t.Errorf("%s of the volume %s with %s has the checksum %s, want %s", name, v.id, kindName(v.fs), got, want)
	}
}

// content is a checksum of what is on the disk, as the host sees it: every byte but zeros.
func (v *volume) content() string {
	v.t.Helper()
	f, err := os.Open(v.disk.File)
	must(v.t, err)
	defer func() { _ = f.Close() }()
	const block = 4096
	h, hole, buf := sha256.New(), int64(0), make([]byte, block)
	for {
		from, err := unix.Seek(int(f.Fd()), hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return fmt.Sprintf("%x", h.Sum(nil))
		}
		must(v.t, err)
		hole, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		must(v.t, err)
		for at := from &^ (block - 1); at < hole; at += block {
			n, err := f.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				v.t.Fatal(err)
			}
			if strings.Trim(string(buf[:n]), "\x00") != "" {
				fmt.Fprintln(h, at)
				_, _ = h.Write(buf[:n])
			}
		}
	}
}

// put writes to the disk of a volume that is not plugged in.
func (v *volume) put(at int64, data string) {
	v.t.Helper()
	f, err := os.OpenFile(v.disk.File, os.O_WRONLY, 0)
	must(v.t, err)
	_, err = f.WriteAt([]byte(data), at)
	must(v.t, errors.Join(err, f.Close()))
}

// random returns n bytes that are the same in every run.
func random(n int) string {
	rng := rand.New(rand.NewPCG(3, 4))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return string(b[:n])
}

func wantCode(t testing.TB, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s = %v (%v), want %v", what, got, err, want)
	}
}

// onEachCloud runs a test on the disks of each cloud, of one SCSI and one virtio cloud with -short.
func onEachCloud(t *testing.T, test func(t *testing.T, h *host)) {
	for _, cloud := range clouds {
		if cloud == vm.Linode && testing.Short() {
			continue // SCSI, as on DigitalOcean
		}
		t.Run(cloud, func(t *testing.T) {
			t.Parallel()
			test(t, sharedMachine(t, cloud))
		})
	}
}

// notShort leaves a test out of the smoke part of the suite.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the smoke part")
	}
}

// kinds are the ways in which a volume is used.
func kinds() []string {
	if testing.Short() {
		return []string{"ext4", ""}
	}
	return []string{"ext4", "xfs", ""}
}

func kindName(fs string) string {
	if fs == "" {
		return "block"
	}
	return fs
}

// sizeFor is a size that a filesystem can be made in.
func sizeFor(fs string) int64 {
	if fs == "xfs" {
		return 320 * mib
	}
	return 160 * mib
}
