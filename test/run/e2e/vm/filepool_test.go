//go:build vm

package vm

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/vm"
)

const (
	localCloud = "local"
	poolFolder = "/var/lib/cloudblock-csi/pool"
)

// poolHost is a machine with both programs of the cloud "local" and a pool on a disk with xfs.
type poolHost struct {
	*host
	*vm.Controller
}

// newPoolHost boots a machine for a pool; see withPool.
func newPoolHost(t *testing.T, disk *vm.Disk, prepare string) *poolHost {
	t.Helper()
	return ownGuest(t).withPool(t, disk, prepare)
}

// withPool plugs in the disk of the pool, mounts it and starts the programs.
func (m *machine) withPool(t *testing.T, disk *vm.Disk, prepare string) *poolHost {
	t.Helper()
	flags := []string{"--local-pool=" + poolFolder, "--node-id=node-a"}
	m.flags = flags
	must(t, m.guest.Plug(within(t), disk))
	kernel, err := m.guest.WaitForLink(within(t), disk)
	must(t, err)
	out, err := m.guest.Run(within(t), fmt.Sprintf("set -e; disk=/dev/%s; %s; mkdir -p %[3]s; mount $disk %[3]s", kernel, prepare, poolFolder))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c, err := m.guest.StartController(within(t), filepath.Join(filepath.Dir(config.Node), "cloudblock-controller"), flags...)
	must(t, err)
	return &poolHost{host: m.host(t, localCloud), Controller: c}
}

// create makes a volume of a class with these parameters, with the paths that a kubelet would use for it.
func (h *poolHost) create(name string, size int64, class map[string]string) (*volume, error) {
	h.t.Helper()
	v := h.volumeNamed(name, "ext4")
	answer, err := h.CreateVolume(within(h.t), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapabilities: []*csi.VolumeCapability{v.capability()},
		Parameters: class,
	})
	if err != nil {
		return nil, err
	}
	v.id = answer.GetVolume().GetVolumeId()
	v.context, err = h.names().DecodeVolumeContext(answer.GetVolume().GetVolumeContext())
	must(h.t, err)
	return v, nil
}

// room is the pool's capacity.
func (h *poolHost) room() int64 {
	h.t.Helper()
	answer, err := h.GetCapacity(within(h.t), &csi.GetCapacityRequest{})
	must(h.t, err)
	return answer.GetAvailableCapacity()
}

// E5, L3, L6: what a pool has reserved for its volumes is theirs, after a power cut with writes that were never synced
// too: the volumes have what was synced, and can be filled to the last byte while the pool is full.
func TestPowerCutOfAPool(t *testing.T) {
	notShort(t)
	t.Parallel()
	const size = 160 * mib
	disk, err := vm.NewDisk(t.TempDir(), vm.Yandex, "pool", gib)
	must(t, err)
	first := newPoolHost(t, disk, "mkfs.xfs -q -m reflink=1 $disk")
	var volumes []*volume
	var sums []string
	for i := range 2 {
		v, err := first.create(fmt.Sprintf("pvc-%d", i), size, nil)
		must(t, err)
		v.ok(v.stage, v.publish)
		before := v.usable()
		if _, err := v.expand(size + 32*mib); err != nil {
			t.Fatal(err)
		}
		if after := v.usable(); after < before+24*mib {
			t.Errorf("the mounted ext4 had %d bytes and has %d, want 32 MiB more", before, after)
		}
		volumes, sums = append(volumes, v), append(sums, v.fill("synced", mib))
	}
	_, err = first.CreateSnapshot(within(t), &csi.CreateSnapshotRequest{Name: "snapshot-0", SourceVolumeId: volumes[0].id})
	must(t, err)
	room := first.room()
	for _, v := range volumes {
		v.run(`cd %s; setsid bash -c 'for i in {1..9}; do head -c 8M /dev/urandom >never-synced-$i; touch written; done; sleep 600' >/dev/null 2>&1 </dev/null &
			until [ -e written ]; do sleep 0.1; done`, v.target)
	}
	first.guest.Kill()

	second := newPoolHost(t, disk, ":")
	if got := second.room(); got > room {
		t.Errorf("the pool has a capacity of %d bytes, and had %d before the power cut", got, room)
	}
	if _, err := second.create("rest", second.room(), nil); err != nil {
		t.Errorf("a volume of the pool's capacity: %v", err)
	}
	_, err = second.create("too-many", 32*mib, nil)
	wantCode(t, "create in a full pool", err, codes.ResourceExhausted)
	for i, v := range volumes {
		v.moveTo(second.host)
		v.ok(v.stage, v.publish)
		v.wantSum("synced", sums[i])
		v.wantFillable()
		v.down()
	}
}

// wantFillable writes until the filesystem has no room, and wants its disk to have taken everything.
func (v *volume) wantFillable() {
	v.t.Helper()
	free := v.number("rm -f %[1]s/never-synced-*; df --output=avail -B1 %[1]s | tail -n 1", v.target)
	written := v.number("tr '\\0' x </dev/zero | head -c 1G >%[1]s/full 2>/dev/null; sync -f %[1]s/full || echo no; stat -c %%s %[1]s/full", v.target)
	if written < free*95/100 {
		v.t.Errorf("%d bytes were written to volume %s where %d were free", written, v.id, free)
	}
	if errors := v.run("dmesg | grep -E 'I/O error|lost .*write' || true"); errors != "" {
		v.t.Errorf("the kernel reports: %s", errors)
	}
}
