package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/expect"
)

var must = expect.NoError

// machine is a fake sysfs and device directory.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t, t.TempDir()}
	for _, dir := range []string{"sys/block", "by-id", "dev"} {
		must(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
	}
	return m
}

// resolver looks at the fake machine as if its device directory were the usual one.
func (m machine) resolver() *ByID {
	b := NewByID(ByIDConfig{
		DeviceDir: filepath.Join(m.root, "by-id"), SysDir: filepath.Join(m.root, "sys"), DevDir: filepath.Join(m.root, "dev"),
	})
	b.allowLoop = false
	return b
}

func (m machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	must(m.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)))
}

func (m machine) symlink(target, path string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	must(m.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)))
}

func (m machine) virtio(kernel, serial string) {
	m.t.Helper()
	m.symlink("../../../bus/virtio", "sys/block/"+kernel+"/device/subsystem")
	m.write("sys/block/"+kernel+"/serial", serial)
}

func (m machine) scsi(kernel, vendor, page string) {
	m.t.Helper()
	m.symlink("../../../bus/scsi", "sys/block/"+kernel+"/device/subsystem")
	m.write("sys/block/"+kernel+"/device/vendor", vendor+"      \n")
	m.write("sys/block/"+kernel+"/device/model", "Volume          \n")
	m.write("sys/block/"+kernel+"/device/vpd_pg83", page)
}

func (m machine) link(name, kernel string) {
	m.t.Helper()
	m.symlink("../../"+kernel, "by-id/"+name)
}

// F3, F4: only a disk whose own serial is the volume's is opened, whatever the links say.
func TestFindProvesWhoTheDiskIs(t *testing.T) {
	do := func(name string) string { return string(page(designator(2, 0, 0, name))) }
	tests := map[string]struct {
		set    func(machine)
		spec   Spec
		kernel string
		kind   fault.Kind
	}{
		"a link and a serial that agree": {
			func(m machine) { m.virtio("vdb", "epd1"); m.link("virtio-epd1", "vdb") },
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "vdb", fault.None,
		},
		"crossed links: each volume is found by its serial": {
			func(m machine) {
				m.virtio("vdb", "epd1")
				m.virtio("vdc", "epd2")
				m.link("virtio-epd1", "vdc")
				m.link("virtio-epd2", "vdb")
			},
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "vdb", fault.None,
		},
		"crossed links, and only the link's name is known": {
			func(m machine) {
				m.scsi("sda", "DO", do("pvc-1"))
				m.scsi("sdb", "DO", do("pvc-2"))
				m.link("scsi-0DO_Volume_pvc-1", "sdb")
				m.link("scsi-0DO_Volume_pvc-2", "sda")
			},
			Spec{Name: "scsi-0DO_Volume_pvc-1"}, "sda", fault.None,
		},
		"a link that leads to another volume's disk is not believed": {
			func(m machine) { m.virtio("vdb", "epd2"); m.link("virtio-epd1", "vdb") },
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "", fault.NotFound,
		},
		"a link that leads nowhere, and the disk under another name": {
			func(m machine) { m.virtio("vdd", "epd1"); m.link("virtio-epd1", "vdb") },
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "vdd", fault.None,
		},
		"no link at all, but the disk is there": {
			func(m machine) { m.scsi("sda", "Linode", do("vol-1")) },
			Spec{Name: "scsi-0Linode_Volume_vol-1", Serial: "vol-1"}, "sda", fault.None,
		},
		"a SCSI disk that hides its page is refused": {
			func(m machine) {
				m.scsi("sda", "DO", do("pvc-1"))
				_ = os.Remove(filepath.Join(m.root, "sys/block/sda/device/vpd_pg83"))
				m.link("scsi-0DO_Volume_pvc-1", "sda")
			},
			Spec{Name: "scsi-0DO_Volume_pvc-1"}, "", fault.Precondition,
		},
		"a SCSI disk whose page is cut off is refused": {
			func(m machine) { m.scsi("sda", "DO", do("pvc-1")[:6]); m.link("scsi-0DO_Volume_pvc-1", "sda") },
			Spec{Name: "scsi-0DO_Volume_pvc-1"}, "", fault.Precondition,
		},
		"a virtio disk with an empty serial is refused": {
			func(m machine) { m.virtio("vdb", "\n"); m.link("virtio-epd1", "vdb") },
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "", fault.Precondition,
		},
		"a disk of an unknown bus is refused": {
			func(m machine) { m.symlink("/bus/xen", "sys/block/xvdb/device/subsystem"); m.link("xen-1", "xvdb") },
			Spec{Name: "xen-1", Serial: "1"}, "", fault.Precondition,
		},
		"a serial cut by virtio still matches": {
			func(m machine) { m.virtio("vdb", "abcdefghijklmnopqrst") },
			Spec{Serial: "abcdefghijklmnopqrstuvwxyz"}, "vdb", fault.None,
		},
		"a serial that merely begins alike does not": {
			func(m machine) { m.virtio("vdb", "epd12") },
			Spec{Serial: "epd1"}, "", fault.NotFound,
		},
		"a SCSI name is never taken for its beginning": {
			func(m machine) { m.scsi("sda", "DO", do("abcdefghijklmnopqrst")) },
			Spec{Serial: "abcdefghijklmnopqrstu"}, "", fault.NotFound,
		},
		"two disks with one serial are refused": {
			func(m machine) { m.virtio("vdb", "epd1"); m.virtio("vdc", "epd1") },
			Spec{Serial: "epd1"}, "", fault.Precondition,
		},
		"a loop device is refused": {
			func(m machine) {
				m.write("sys/block/loop0/loop/backing_file", "/tmp/virtio-epd1.img\n")
				m.link("virtio-epd1", "loop0")
			},
			Spec{Name: "virtio-epd1", Serial: "epd1"}, "", fault.Precondition,
		},
		"an NVMe disk is found by its serial": {
			func(m machine) {
				m.symlink("/sys/class/nvme", "sys/block/nvme0n1/device/subsystem")
				m.write("sys/block/nvme0n1/device/serial", "vol1  \n")
			},
			Spec{Serial: "vol1"}, "nvme0n1", fault.None,
		},
		"a spec that knows nothing finds nothing": {
			func(m machine) { m.virtio("vdb", "epd1") }, Spec{}, "", fault.NotFound,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.set(m)
			kernel, _, err := m.resolver().find(t.Context(), tc.spec)
			if kernel != tc.kernel || fault.Of(err) != tc.kind {
				t.Errorf("find(%+v) = %q, %v, want %q and kind %q", tc.spec, kernel, err, tc.kernel, tc.kind)
			}
			if is := errors.Is(err, fault.DeviceIdentity); is != (tc.kind == fault.Precondition) {
				t.Errorf("the reason of %v is %q", err, string(fault.ReasonOf(err)))
			}
		})
	}
}

func TestADiskOfTheMachineIsNeverTakenForAVolume(t *testing.T) {
	m := newMachine(t)
	m.virtio("vda", "root")
	m.scsi("sda", "DO", string(page(designator(2, 0, 0, "pvc-1"))))
	m.scsi("sdb", "QEMU", string(page(designator(2, 0, 0, "root"))))
	b := m.resolver()
	b.linkPrefix = "scsi-0DO_Volume_"
	for spec, want := range map[Spec]string{
		{Serial: "pvc-1"}: "sda", {Name: "scsi-0DO_Volume_pvc-1"}: "sda", {Serial: "root"}: "", {Name: "virtio-root"}: "", {Name: "scsi-0QEMU_Volume_root"}: "",
	} {
		kernel, _, err := b.find(t.Context(), spec)
		if kernel != want || (want == "") != errors.Is(err, fault.NotFound) {
			t.Errorf("find(%+v) = %q, %v, want %q", spec, kernel, err, want)
		}
	}
}

// F3: a name in sysfs that has passed to another disk since the disk was opened proves nothing (D01 of the mutants).
func TestADiskWhoseNameHasPassedOnIsNoLongerProven(t *testing.T) {
	m := newMachine(t)
	m.virtio("vdb", "epd1")
	m.write("sys/block/vdb/dev", "252:16\n")
	spec := Spec{Volume: "v1", Serial: "epd1"}
	for number, want := range map[uint64]fault.Kind{unix.Mkdev(252, 16): fault.None, unix.Mkdev(252, 32): fault.Unavailable} {
		err := m.resolver().verify(t.Context(), &Device{path: "/dev/vdb", number: number, spec: spec}, "vdb", false)
		if fault.Of(err) != want || (err == nil) != (want == fault.None) {
			t.Errorf("verify of device number %#x = %v, want %q", number, err, want)
		}
	}
}

func TestMessagesRepeatNothingOfTheRequest(t *testing.T) {
	m := newMachine(t)
	m.virtio("vdb", "epd1")
	for _, spec := range []Spec{{Volume: "v1", Name: "secret-name"}, {Volume: "v1", Serial: "secret-serial"}, {Volume: "v1", Name: "../secret"}} {
		if _, err := m.resolver().Lookup(t.Context(), spec); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Lookup(%+v) = %v, want an error that does not repeat it", spec, err)
		}
	}
}

func TestNamesThatLeadElsewhereAreRefused(t *testing.T) {
	m := newMachine(t)
	for _, name := range []string{"../../etc/passwd", "..", ".", "a/b", "a\x00b", "/dev/sda"} {
		if _, err := m.resolver().Lookup(t.Context(), Spec{Name: name}); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("Lookup(name %q) = %v, want %v", name, err, fault.InvalidArgument)
		}
		if _, err := m.resolver().Open(t.Context(), Spec{Name: name}); !errors.Is(err, fault.InvalidArgument) {
			t.Errorf("Open(name %q) = %v, want %v", name, err, fault.InvalidArgument)
		}
	}
}

// F4: a volume that was renamed while it was attached keeps its name on the machine; the link says nothing of that.
func TestTwoDisksOfOneNameAreRefused(t *testing.T) {
	name := string(page(designator(2, 0, 0, "vol-1")))
	spec := Spec{Volume: "v1", Name: "scsi-0Linode_Volume_vol-1", Serial: "vol-1"}
	m := newMachine(t)
	m.scsi("sda", "Linode", name)
	m.link(spec.Name, "sda")
	if err := m.resolver().alone(t.Context(), &Device{path: "/dev/sda", spec: spec}); err != nil {
		t.Errorf("alone = %v for one disk", err)
	}
	m.scsi("sdb", "Linode", name)
	if err := m.resolver().alone(t.Context(), &Device{path: "/dev/sda", spec: spec}); !errors.Is(err, fault.DeviceIdentity) {
		t.Errorf("alone = %v for two disks, want %v", err, fault.DeviceIdentity)
	}
	if kernel, _, err := m.resolver().find(t.Context(), spec); kernel != "sda" || err != nil {
		t.Errorf("find = %q, %v: the one that is in use can be put away no more", kernel, err)
	}
}

// A8: the wait for a disk ends with the call, and the error says what was seen last.
func TestOpenEndsWithItsContextAndSaysWhatItSaw(t *testing.T) {
	m := newMachine(t)
	m.virtio("vdb", "epd2")
	m.link("virtio-epd1", "vdb")
	ctx, cancel := context.WithTimeout(t.Context(), rescanEvery*2)
	defer cancel()
	_, err := m.resolver().Open(ctx, Spec{Volume: "v1", Name: "virtio-epd1", Serial: "epd1"})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fault.DeviceMissing) || fault.Of(err) != fault.Unavailable {
		t.Errorf("Open = %v, want %v after the deadline", err, fault.DeviceMissing)
	}
}

// dueContext has a deadline and never ends.
type dueContext struct {
	context.Context
	at time.Time
}

func (c dueContext) Deadline() (time.Time, bool) { return c.at, true }

// A caller whose deadline has passed does not see the answer: the kubelet's event would have no reason.
func TestOpenEndsBeforeItsCallersDeadline(t *testing.T) {
	m := newMachine(t)
	ctx := dueContext{context.WithoutCancel(t.Context()), time.Now().Add(4 * rescanEvery)}
	_, err := m.resolver().Open(ctx, Spec{Volume: "v1", Name: "virtio-epd1", Serial: "epd1"})
	if !errors.Is(err, fault.DeviceMissing) {
		t.Errorf("Open = %v, want %v", err, fault.DeviceMissing)
	}
}

// The end may come at any place, also between two looks: the error still says what was seen.
func TestOpenSaysWhatItSawWhereverItsContextEnds(t *testing.T) {
	m := newMachine(t)
	m.virtio("vdb", "epd2")
	for n := range int32(4) {
		ctx, cancel := context.WithCancel(t.Context())
		ending := &endingContext{Context: ctx, end: cancel}
		ending.left.Store(n + 2) // the first look is complete
		_, err := m.resolver().Open(ending, Spec{Volume: "v1", Name: "virtio-epd1", Serial: "epd1"})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, fault.DeviceMissing) {
			t.Errorf("Open whose context ends when it is asked for the %d. time = %v, want %v", n+2, err, fault.DeviceMissing)
		}
		cancel()
	}
}

// endingContext ends when its error is asked for the left-th time.
type endingContext struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int32
}

func (c *endingContext) Err() error {
	if c.left.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Err()
}

func TestANodeIsNotADisk(t *testing.T) {
	m := newMachine(t)
	m.virtio("vdb", "epd1")
	m.write("dev/vdb", "a plain file where the device node should be")
	if _, err := m.resolver().Lookup(t.Context(), Spec{Serial: "epd1"}); !errors.Is(err, fault.DeviceIdentity) {
		t.Errorf("Lookup = %v, want %v", err, fault.DeviceIdentity)
	}
}

// F3: a loop device is never taken for a disk below the cloud's own folder of links.
func TestLoopDevicesAreForOtherDirectories(t *testing.T) {
	for dir, want := range map[string]bool{
		"": false, "/dev/disk/by-id": false, "/dev/disk": false, "/dev/disk/by-path/": false, "/dev/../dev/disk/x": false,
		"/tmp/by-id": true, "/dev/diskette": true,
	} {
		if got := NewByID(ByIDConfig{DeviceDir: dir}).allowLoop; got != want {
			t.Errorf("NewByID(%q) accepts loop devices: %v, want %v", dir, got, want)
		}
	}
}
