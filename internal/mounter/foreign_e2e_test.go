//go:build e2e

package mounter_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

func (d *loopDevice) put(at int64, data string) {
	d.t.Helper()
	if _, err := d.file.WriteAt([]byte(data), at); err != nil {
		d.t.Fatal(err)
	}
}

// sum is a checksum of every block on the device that is not zero. Which zeros are holes in its file is the
// concern of the file's filesystem, which changes it when it writes back.
func (d *loopDevice) sum() string {
	d.t.Helper()
	const block = 4 * kib
	noError(d.t, d.file.Sync())
	f, err := os.Open(d.back)
	noError(d.t, err)
	defer func() { _ = f.Close() }()
	h, hole, buf := sha256.New(), int64(0), make([]byte, block)
	for {
		from, err := unix.Seek(int(f.Fd()), hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return string(h.Sum(nil))
		}
		noError(d.t, err)
		if hole, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			d.t.Fatal(err)
		}
		for at := from &^ (block - 1); at < hole; at += block {
			n, err := f.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				d.t.Fatal(err)
			}
			if len(bytes.TrimLeft(buf[:n], "\x00")) > 0 {
				fmt.Fprintln(h, at)
				_, _ = h.Write(buf[:n])
			}
		}
	}
}

// F1: a device with any known signature, or with data of no known kind, is refused and not changed.
func TestForeignDataIsNeverFormatted(t *testing.T) {
	t.Parallel()
	const size = 130 * mib // room for btrfs
	made := func(program ...string) func(*loopDevice) {
		return func(d *loopDevice) { must(d.t, program[0], append(program[1:], d.Path())...) }
	}
	put := func(at int64, data string) func(*loopDevice) { return func(d *loopDevice) { d.put(at, data) } }
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	someSample := format.ProbeExtents(size)[len(format.ProbeExtents(size))/2].From
	tests := map[string]struct {
		set  func(*loopDevice)
		want mounter.Filesystem
		says string
	}{
		"ext4":                          {made("/sbin/mkfs.ext4", "-q", "-F"), mounter.XFS, "ext4"},
		"ext2":                          {made("/sbin/mkfs.ext2", "-q", "-F"), mounter.Ext4, "ext2"},
		"ext3":                          {made("/sbin/mkfs.ext3", "-q", "-F"), mounter.Ext4, "ext3"},
		"btrfs":                         {made("/sbin/mkfs.btrfs", "-q", "-f"), mounter.Ext4, "btrfs"},
		"swap":                          {made("/sbin/mkswap"), mounter.Ext4, "swap"},
		"a LUKS header":                 {put(0, "LUKS\xba\xbe\x00\x02"), mounter.Ext4, "LUKS"},
		"a second LUKS header":          {put(4*mib, "SKUL\xba\xbe"), mounter.Ext4, "LUKS"},
		"an LVM label":                  {put(512, "LABELONE"), mounter.Ext4, "not blank"},
		"an md superblock at the start": {put(4*kib, "\xfc\x4e\x2b\xa9"), mounter.Ext4, ""},
		"an md superblock at the end":   {put(size-64*kib, "\xfc\x4e\x2b\xa9"), mounter.Ext4, ""},
		"a GPT":                         {put(512, "EFI PART"), mounter.Ext4, "not blank"},
		"only the backup of a GPT":      {put(size-512, "EFI PART"), mounter.Ext4, "not blank"},
		"an MBR":                        {put(510, "\x55\xaa"), mounter.Ext4, ""},
		"a ZFS label":                   {put(size-100*kib, "\x0c\xb1\xba\x00"), mounter.Ext4, "not blank"},
		"an ext4 whose start was wiped": {func(d *loopDevice) {
			made("/sbin/mkfs.ext4", "-q", "-F")(d)
			d.put(0, strings.Repeat("\x00", int(mib)))
		}, mounter.Ext4, ""},
		"a btrfs whose start was wiped": {func(d *loopDevice) {
			made("/sbin/mkfs.btrfs", "-q", "-f")(d)
			d.put(0, strings.Repeat("\x00", int(mib)))
		}, mounter.Ext4, "not blank"},
		"an ext4 with a damaged magic":       {func(d *loopDevice) { made("/sbin/mkfs.ext4", "-q", "-F")(d); d.put(1080, "\x00\x00") }, mounter.Ext4, "not blank"},
		"random bytes at the start":          {put(0, random(512)), mounter.Ext4, "not blank"},
		"one byte in the first MiB":          {put(777777, "x"), mounter.Ext4, "777777"},
		"one byte in the last MiB":           {put(size-1, "x"), mounter.Ext4, "not blank"},
		"random bytes where a sample is":     {put(someSample, random(100)), mounter.Ext4, "not blank"},
		"random bytes everywhere":            {put(0, random(int(size))), mounter.Ext4, ""},
		"an XFS superblock at the wrong end": {put(size/4, "XFSB"), mounter.Ext4, "not blank"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dev, programs := newLoop(t, size), counted()
			tc.set(dev)
			before := dev.sum()
			req := format.Request{Volume: "v1", Filesystem: tc.want, BlankCreated: true}
			fs, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req)
			if !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("EnsureFormatted = %q, %v, want a refusal that says %q", fs, err, tc.says)
			}
			if programs.runs() > 0 || dev.sum() != before {
				t.Errorf("the device was changed (%d mkfs)", programs.runs())
			}
		})
	}
}

// F13: the image of a CD that a pod has saved where blkid looks for a CD keeps an xfs usable, and a RAID's superblock there does not.
func TestACDOnAnXFS(t *testing.T) {
	t.Parallel()
	const size = 400 * mib
	dev, programs := newLoop(t, size), counted()
	m, req := newMachine(programs), format.Request{Volume: "v1", Filesystem: mounter.XFS, BlankCreated: true}
	for _, step := range []struct {
		at   int64
		data string
		used bool
	}{{0, "", true}, {32 * kib, "\x01CD001\x01", true}, {size - 64*kib, "\xfc\x4e\x2b\xa9" + "\x00\x00\x00\x00\x5a\x00\x00\x00", false}} {
		dev.put(step.at, step.data)
		if fs, err := m.EnsureFormatted(t.Context(), dev, req); (err == nil && fs == mounter.XFS) != step.used {
			t.Errorf("with %q at %d: EnsureFormatted = %q, %v, want it used: %v", step.data, step.at, fs, err, step.used)
		}
	}
	if programs.runs() != 1 {
		t.Errorf("%d mkfs have run, want 1", programs.runs())
	}
}

// F7: a device is not formatted if the request forbids it, if the volume has a source, or if the device is smaller than
// promised.
func TestVolumesThatMayNotBeFormatted(t *testing.T) {
	t.Parallel()
	dev, programs := newLoop(t, small), counted()
	for name, req := range map[string]format.Request{
		"a forbidden one":                {Forbidden: true},
		"one made of a snapshot":         {HasContent: true},
		"one that is smaller than it is": {Size: small + 1},
	} {
		t.Run(name, func(t *testing.T) {
			req.Volume, req.Filesystem = "v1", mounter.Ext4
			if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want %v and none", err, programs.runs(), fault.Precondition)
			}
		})
	}
	bad := format.Request{Volume: "v1", Filesystem: mounter.Ext4, MkfsOptions: []string{"-J", "device=/dev/sda"}}
	if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, bad); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("EnsureFormatted with an external journal = %v, want %v", err, fault.InvalidArgument)
	}
}

func TestFormatNonZeroIsForOurOwnBlankVolumes(t *testing.T) {
	t.Parallel()
	dev, programs := newLoop(t, small), counted()
	dev.put(3000, "left by the cloud")
	req := format.Request{Volume: "v1", Filesystem: mounter.XFS, FormatNonZero: true}
	if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
		t.Errorf("EnsureFormatted of a volume that was not created blank = %v, want %v", err, fault.Precondition)
	}
	req.BlankCreated = true
	if _, err := newMachine(programs).EnsureFormatted(t.Context(), dev, req); err != nil || programs.runs() != 1 {
		t.Errorf("EnsureFormatted = %v with %d mkfs, want one", err, programs.runs())
	}
}

// F2, F5: what was true when the device was probed is asked again right before mkfs.
func TestDeviceThatChangesUnderTheProbe(t *testing.T) {
	t.Parallel()
	for name, verify := range map[string]func(*loopDevice) error{
		"its link leads elsewhere now": func(*loopDevice) error { return fault.Unavailable },
		"it has another size now":      func(d *loopDevice) error { d.grow(small + mib); return nil },
		"it is smaller than promised":  func(d *loopDevice) error { d.grow(small - mib); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dev, programs := newLoop(t, small), counted()
			blank := dev.sum()
			dev.verify = func() error { return verify(dev) }
			_, err := newMachine(programs).EnsureFormatted(t.Context(), dev, format.Request{Volume: "v1", Filesystem: mounter.Ext4, Size: small})
			if err == nil || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want a refusal and none", err, programs.runs())
			}
			if dev.sum() != blank {
				t.Error("the device was written to")
			}
		})
	}
	t.Run("a larger device is used at its real size", func(t *testing.T) {
		dev := newLoop(t, small)
		newMachine().formatted(t, dev, format.Request{Volume: "v1", Filesystem: mounter.Ext4, Size: 100 * mib})
		if size, _ := sizeOf(t, dev, "", mounter.Ext4); size != small {
			t.Errorf("the filesystem has %d bytes, want %d", size, small)
		}
	})
}

func TestMkfsOptionsThatMakeSomethingElseAreNoticed(t *testing.T) {
	t.Parallel()
	dev := newLoop(t, small)
	req := format.Request{Volume: "v1", Filesystem: mounter.Ext4, MkfsOptions: []string{"-T", "ext2", "-O", "none"}}
	if _, err := newMachine().EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
		t.Fatalf("EnsureFormatted = %v, want %v", err, fault.Precondition)
	}
	req.MkfsOptions = nil // whoever made the volume corrects the class; what is on the disk has a signature and stays
	for begun, want := range map[format.Begun]fault.Reason{format.NotBegun: fault.FormatContent, format.BegunOnDevice: fault.FormatUnfinished, format.BegunBefore: fault.FormatContent} {
		req.Begun = begun
		if _, err := newMachine().EnsureFormatted(t.Context(), dev, req); fault.ReasonOf(err) != want {
			t.Errorf("EnsureFormatted with better options and the record %v = %v, want %v", begun, err, want)
		}
	}
}
