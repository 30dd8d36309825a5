//go:build e2e

package mounter

import (
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
	if err := d.file.Sync(); err != nil {
		d.t.Fatal(err)
	}
	f, err := os.Open(d.back)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	h, hole, buf := sha256.New(), int64(0), make([]byte, block)
	for {
		from, err := unix.Seek(int(f.Fd()), hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return string(h.Sum(nil))
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if hole, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			d.t.Fatal(err)
		}
		for at := from &^ (block - 1); at < hole; at += block {
			n, err := f.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				d.t.Fatal(err)
			}
			if firstNonZero(buf[:n]) >= 0 {
				fmt.Fprintln(h, at)
				_, _ = h.Write(buf[:n])
			}
		}
	}
}

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
	someSample := probeExtents(size)[len(probeExtents(size))/2].from
	tests := map[string]struct {
		set  func(*loopDevice)
		want Filesystem
		says string
	}{
		"ext4":                          {made("/sbin/mkfs.ext4", "-q", "-F"), XFS, "ext4"},
		"ext2":                          {made("/sbin/mkfs.ext2", "-q", "-F"), Ext4, "ext2"},
		"ext3":                          {made("/sbin/mkfs.ext3", "-q", "-F"), Ext4, "ext3"},
		"btrfs":                         {made("/sbin/mkfs.btrfs", "-q", "-f"), Ext4, "btrfs"},
		"swap":                          {made("/sbin/mkswap"), Ext4, "swap"},
		"a LUKS header":                 {put(0, "LUKS\xba\xbe\x00\x02"), Ext4, "LUKS"},
		"a second LUKS header":          {put(4*mib, "SKUL\xba\xbe"), Ext4, "LUKS"},
		"an LVM label":                  {put(512, "LABELONE"), Ext4, "not blank"},
		"an md superblock at the start": {put(4*kib, "\xfc\x4e\x2b\xa9"), Ext4, ""},
		"an md superblock at the end":   {put(size-64*kib, "\xfc\x4e\x2b\xa9"), Ext4, ""},
		"a GPT":                         {put(512, "EFI PART"), Ext4, "not blank"},
		"only the backup of a GPT":      {put(size-512, "EFI PART"), Ext4, "not blank"},
		"an MBR":                        {put(510, "\x55\xaa"), Ext4, ""},
		"a ZFS label":                   {put(size-100*kib, "\x0c\xb1\xba\x00"), Ext4, "not blank"},
		"an ext4 whose start was wiped": {func(d *loopDevice) {
			made("/sbin/mkfs.ext4", "-q", "-F")(d)
			d.put(0, strings.Repeat("\x00", int(mib)))
		}, Ext4, ""},
		"a btrfs whose start was wiped": {func(d *loopDevice) {
			made("/sbin/mkfs.btrfs", "-q", "-f")(d)
			d.put(0, strings.Repeat("\x00", int(mib)))
		}, Ext4, "not blank"},
		"an ext4 with a damaged magic":       {func(d *loopDevice) { made("/sbin/mkfs.ext4", "-q", "-F")(d); d.put(1080, "\x00\x00") }, Ext4, "not blank"},
		"random bytes at the start":          {put(0, random(512)), Ext4, "not blank"},
		"one byte in the first MiB":          {put(777777, "x"), Ext4, "777777"},
		"one byte in the last MiB":           {put(size-1, "x"), Ext4, "not blank"},
		"random bytes where a sample is":     {put(someSample, random(100)), Ext4, "not blank"},
		"random bytes everywhere":            {put(0, random(int(size))), Ext4, ""},
		"an XFS superblock at the wrong end": {put(size/4, "XFSB"), Ext4, "not blank"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dev, programs := newLoop(t, size), counted()
			tc.set(dev)
			before := dev.sum()
			req := FormatRequest{Volume: "v1", Filesystem: tc.want, BlankCreated: true}
			fs, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, req)
			if !errors.Is(err, fault.Precondition) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("EnsureFormatted = %q, %v, want a refusal that says %q", fs, err, tc.says)
			}
			if programs.runs() > 0 || dev.sum() != before {
				t.Errorf("the device was changed (%d mkfs)", programs.runs())
			}
		})
	}
}

func TestVolumesThatMayNotBeFormatted(t *testing.T) {
	t.Parallel()
	dev, programs := newLoop(t, small), counted()
	for name, req := range map[string]FormatRequest{
		"a forbidden one":                {Forbidden: true},
		"one made of a snapshot":         {HasContent: true},
		"one that is smaller than it is": {Size: small + 1},
	} {
		t.Run(name, func(t *testing.T) {
			req.Volume, req.Filesystem = "v1", Ext4
			if _, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want %v and none", err, programs.runs(), fault.Precondition)
			}
		})
	}
	bad := FormatRequest{Volume: "v1", Filesystem: Ext4, MkfsOptions: []string{"-J", "device=/dev/sda"}}
	if _, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, bad); !errors.Is(err, fault.InvalidArgument) {
		t.Errorf("EnsureFormatted with an external journal = %v, want %v", err, fault.InvalidArgument)
	}
}

func TestFormatNonZeroIsForOurOwnBlankVolumes(t *testing.T) {
	t.Parallel()
	dev, programs := newLoop(t, small), counted()
	dev.put(3000, "left by the cloud")
	req := FormatRequest{Volume: "v1", Filesystem: XFS, FormatNonZero: true}
	if _, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
		t.Errorf("EnsureFormatted of a volume that was not created blank = %v, want %v", err, fault.Precondition)
	}
	req.BlankCreated = true
	if _, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, req); err != nil || programs.runs() != 1 {
		t.Errorf("EnsureFormatted = %v with %d mkfs, want one", err, programs.runs())
	}
}

// TestDeviceThatChangesUnderTheProbe is F2 and F5: what was true when the device was probed is
// asked again right before mkfs.
func TestDeviceThatChangesUnderTheProbe(t *testing.T) {
	t.Parallel()
	for name, verify := range map[string]func(*loopDevice) error{
		"its link leads elsewhere now": func(*loopDevice) error { return fault.Unavailable },
		"it has another size now":      func(d *loopDevice) error { d.grow(small + mib); return nil },
		"it is smaller than promised":  func(d *loopDevice) error { d.grow(small - mib); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dev, programs := newLoop(t, small), counted()
			dev.verify = func() error { return verify(dev) }
			_, err := New(Config{Runner: programs}).EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4, Size: small})
			if err == nil || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want a refusal and none", err, programs.runs())
			}
			found, err := probe(t.Context(), dev.file, small-mib)
			if err != nil || found >= 0 {
				t.Errorf("the device was written to at %d, %v", found, err)
			}
		})
	}
	t.Run("a larger device is used at its real size", func(t *testing.T) {
		dev := newLoop(t, small)
		if _, err := New(Config{}).EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4, Size: 100 * mib}); err != nil {
			t.Fatal(err)
		}
		if sb, err := sizeOf(dev, "", Ext4); err != nil || sb.blocks*sb.blockSize != small {
			t.Errorf("the filesystem has %d bytes, %v, want %d", sb.blocks*sb.blockSize, err, small)
		}
	})
}

func TestMkfsOptionsThatMakeSomethingElseAreNoticed(t *testing.T) {
	t.Parallel()
	dev := newLoop(t, small)
	req := FormatRequest{Volume: "v1", Filesystem: Ext4, MkfsOptions: []string{"-T", "ext2", "-O", "none"}}
	if _, err := New(Config{}).EnsureFormatted(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
		t.Fatalf("EnsureFormatted = %v, want %v", err, fault.Precondition)
	}
	req.MkfsOptions = nil // whoever made the volume corrects the class; what is on the disk has a signature and stays
	for begun, want := range map[Begun]fault.Reason{NotBegun: fault.FormatContent, BegunOnDevice: fault.FormatUnfinished, BegunBefore: fault.FormatContent} {
		req.Begun = begun
		if _, err := New(Config{}).EnsureFormatted(t.Context(), dev, req); fault.ReasonOf(err) != want {
			t.Errorf("EnsureFormatted with better options and the record %v = %v, want %v", begun, err, want)
		}
	}
}
