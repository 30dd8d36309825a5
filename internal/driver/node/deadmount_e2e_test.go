//go:build e2e

package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
	"github.com/cloudblock-csi/cloudblock-csi/internal/driver/node"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/device"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/mount"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/mounts"
)

// lostDisk is a volume that was in use when its disk was taken away by force, and attached again.
type lostDisk struct {
	*volume
	first, second string // the kernel's names of its disk
	sum           string
	reasons       lastReasons
}

// lastReasons is a node.Metrics that keeps the last health.
type lastReasons struct{ last atomic.Pointer[[]string] }

func (*lastReasons) Begin() (end func()) { return func() {} }

func (r *lastReasons) Health(_ string, reasons []string) { r.last.Store(&reasons) }

// measured returns the health in the metrics after the statistics were read.
func (d *lostDisk) measured(t *testing.T) []string {
	t.Helper()
	_, err := d.usage(t.Context(), d.target)
	last := d.reasons.last.Load()
	if last == nil {
		t.Fatalf("the statistics set no health: %v", err)
	}
	return *last
}

// newLostDisk stages and publishes a volume and attaches its disk a second time. The first is there still.
func newLostDisk(t *testing.T, fs string) *lostDisk {
	t.Helper()
	dir := newDir(t)
	nodes, links := filepath.Join(dir, "dev"), filepath.Join(dir, "by-id")
	must(t, os.MkdirAll(nodes, 0o700))
	must(t, unix.Mount("tmpfs", nodes, "tmpfs", 0, ""))
	sys := filepath.Join(dir, "sys")
	must(t, os.MkdirAll(filepath.Join(sys, "dev"), 0o700))
	must(t, os.Symlink("/sys/dev/block", filepath.Join(sys, "dev", "block")))
	m, d := newCloudMachine(t, dir), &lostDisk{}
	m.NodeClient = serveWith(t, node.Config{
		Metrics: &d.reasons,
		Devices: device.NewByID(device.ByIDConfig{DeviceDir: links, DevDir: nodes}), Records: device.NewRecords(m.records),
		Mounter: mount.New(mount.Config{Sysfs: host.Sysfs(sys)}),
	}, driver.Config{})
	d.volume = m.attach("v1", fs, sizeFor(fs))
	link := filepath.Join(links, strings.TrimSuffix(filepath.Base(d.image), ".img"))
	d.first = filepath.Base(must1(os.Readlink(link))(t))
	d.makeNode(t, d.first)
	d.ok(d.stage, d.publish)
	if fs != "" {
		d.sum = randomFile(t, filepath.Join(d.target, "data"), mib)
		sh(t, "sync", "-f", d.target)
	}
	again := filepath.Join(dir, "again", filepath.Base(d.image))
	must(t, os.Mkdir(filepath.Dir(again), 0o700))
	sh(t, "cp", "--sparse=always", d.image, again)
	loop := strings.TrimSpace(sh(t, "losetup", "--find", "--show", again))
	d.second = filepath.Base(loop)
	d.makeNode(t, d.second)
	must(t, os.Remove(link))
	must(t, os.Symlink(loop, link))
	return d
}

func (d *lostDisk) makeNode(t *testing.T, kernel string) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat("/dev/"+kernel, &st))
	must(t, unix.Mknod(filepath.Join(d.dir, "dev", kernel), unix.S_IFBLK|0o600, int(st.Rdev)))
}

// lose makes the first disk look as the kernel shows one that was pulled out: no longer listed, its node removed,
// and its filesystem shut down.
func (d *lostDisk) lose(t *testing.T) {
	t.Helper()
	if d.sum != "" {
		shutDown(t, d.staging)
	}
	must(t, os.Remove(filepath.Join(d.dir, "dev", d.first)))
	list := filepath.Join(d.dir, "sys", "dev", "block")
	must(t, os.Remove(list))
	must(t, os.Mkdir(list, 0o700))
	var st unix.Stat_t
	must(t, unix.Stat("/dev/"+d.second, &st))
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	must(t, os.Symlink("/sys/dev/block/"+number, filepath.Join(list, number)))
}

// serves proves that what is published is the second disk, with what was written to the first.
func (d *lostDisk) serves(t *testing.T) {
	t.Helper()
	var disk, at unix.Stat_t
	must(t, unix.Stat("/dev/"+d.second, &disk))
	must(t, unix.Stat(d.target, &at))
	number := at.Rdev
	if d.sum != "" {
		number = at.Dev
		if got := sumOf(t, filepath.Join(d.target, "data")); got != d.sum {
			t.Error("the file is not what was written")
		}
	}
	if number != disk.Rdev {
		t.Errorf("the target is on device %#x, want %#x", number, disk.Rdev)
	}
}

// A4: its mount at the staging path is in the way of nobody. While the first disk is listed still, perhaps with data
// that is not on it yet, nothing is touched.
func TestDiskThatWasTakenAwayByForceAndCameBack(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", ""} {
		t.Run(kindName(fs)+" staged again", func(t *testing.T) {
			d := newLostDisk(t, fs)
			before := mountTable(t, d.dir)
			wantCode(t, "stage while the first disk is there", d.stage(t.Context()), codes.AlreadyExists)
			if after := mountTable(t, d.dir); after != before {
				t.Errorf("the mounts were\n%s\nand are\n%s", before, after)
			}
			d.lose(t)
			list := filepath.Join(d.dir, "sys")
			must(t, os.Rename(list, list+"-away"))
			wantCode(t, "stage where no disk is listed at all", d.stage(t.Context()), codes.AlreadyExists)
			must(t, os.Rename(list+"-away", list))
			if got := d.measured(t); !slices.Equal(got, []string{"DeviceGone"}) {
				t.Errorf("without the disk the metrics have %v", got)
			}
			d.ok(d.stage, d.stage)
			wantCode(t, "publish over the target of the first disk", d.publish(t.Context()), codes.AlreadyExists)
			d.ok(d.unpublish, d.publish)
			d.serves(t)
			if got := d.measured(t); len(got) > 0 {
				t.Errorf("with the disk that came back the metrics have %v", got)
			}
			d.goneButForTheDisk()
		})
		t.Run(kindName(fs)+" unstaged", func(t *testing.T) {
			d := newLostDisk(t, fs)
			d.lose(t)
			wantCode(t, "publish", d.publish(t.Context()), codes.FailedPrecondition)
			d.ok(d.unpublish, d.unstage, d.unstage, d.stage, d.publish)
			d.serves(t)
			d.goneButForTheDisk()
		})
	}
}

// What lies below the volume's own mount is not the volume's, and stays.
func TestUnstageLeavesWhatItsMountCovers(t *testing.T) {
	m := newCloudMachine(t, newDir(t))
	v, other := m.attach("v", "ext4", 64*mib), m.attach("other", "ext4", 64*mib)
	other.ok(other.stage)
	v.ok(v.stage)
	must(t, mounts.Unmount(v.staging))
	sh(t, "mount", "--bind", other.staging, v.staging)
	loop := must1(os.Readlink(filepath.Join(m.dir, "by-id", strings.TrimSuffix(filepath.Base(v.image), ".img"))))(t)
	sh(t, "mount", loop, v.staging)
	wantCode(t, "unstage", v.unstage(t.Context()), codes.FailedPrecondition)
	if left := mountsBelow(t, v.staging); len(left) != 1 {
		t.Errorf("%d mounts are left at the staging path, want the one of the other volume", len(left))
	}
}
