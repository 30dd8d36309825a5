//go:build e2e

package mounter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// oneGroup is the size of an ext4 of a single group, which has no backup of its superblock.
const oneGroup = 64 * mib

// filled is the image of an ext4 with files in it, and their sums by their paths below its root.
type filled struct {
	image string
	sums  map[string][32]byte
}

func newFilled(t *testing.T) filled {
	t.Helper()
	m, dev := New(Config{}), newLoop(t, oneGroup)
	t.Setenv(killerAt, "0")
	f, root := filled{dev.back, map[string][32]byte{}}, filepath.Join(t.TempDir(), "root")
	// Blocks of 4 KiB, as on all but the smallest volumes.
	if _, err := m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4, MkfsOptions: []string{"-b", "4096"}}); err != nil {
		t.Fatal(err)
	}
	if err := m.MountDevice(t.Context(), dev, MountRequest{Target: root, Filesystem: Ext4}); err != nil {
		t.Fatal(err)
	}
	random := rand.NewChaCha8([32]byte{1})
	for i := range 60 {
		data := make([]byte, 1+i*7919)
		_, _ = random.Read(data)
		path := filepath.Join(fmt.Sprintf("d%d", i%7), strconv.Itoa(i))
		full := filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		f.sums[path] = sha256.Sum256(data)
	}
	takeDown(t, m, dev, root)
	dev.detach()
	return f
}

// halfGrown is a device with a copy of the image, which has grown, and the resize2fs of its next mount
// was killed at one of its calls.
func (f filled) halfGrown(t *testing.T, at int) (*Mounter, *loopDevice, MountRequest) {
	t.Helper()
	m, dev, req, err := f.grown(t, at)
	if err == nil {
		t.Fatalf("MountDevice with resize2fs killed at call %d = nil", at)
	}
	return m, dev, req
}

// grown is halfGrown if resize2fs makes that many calls, with what the mount said; 0: it is not killed.
func (f filled) grown(t *testing.T, at int) (*Mounter, *loopDevice, MountRequest, error) {
	t.Helper()
	m := New(Config{})
	m.growsOnline = func() bool { return false }
	dir := t.TempDir()
	image, req := filepath.Join(dir, "disk.img"), MountRequest{Target: filepath.Join(dir, "staging"), Filesystem: Ext4}
	must(t, "cp", "--sparse=always", f.image, image)
	dev := attach(t, image)
	dev.grow(5 * oneGroup)
	t.Setenv(killerAt, strconv.Itoa(at))
	err := m.MountDevice(t.Context(), dev, req)
	t.Setenv(killerAt, "0")
	return m, dev, req, err
}

// whole looks that a mounted filesystem has its files and its size, then takes it down.
func (f filled) whole(t *testing.T, m *Mounter, dev *loopDevice, req MountRequest) {
	t.Helper()
	for path, sum := range f.sums {
		if data, err := os.ReadFile(filepath.Join(req.Target, path)); err != nil || sha256.Sum256(data) != sum {
			t.Errorf("%s has %d bytes, %v, which are not those that were written", path, len(data), err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(req.Target, "lost+found")); err != nil || len(left) > 0 {
		t.Errorf("lost+found holds %v, %v", left, err)
	}
	if st, err := m.FilesystemStats(req.Target); err != nil || st.TotalBytes < 4*oneGroup {
		t.Errorf("FilesystemStats = %+v, %v, want about %d", st, err, 5*oneGroup)
	}
	takeDown(t, m, dev, req.Target)
	consistent(t, dev, Ext4)
	if _, ok, err := readResizeNote(dev.file); ok || err != nil {
		t.Errorf("the note is still there (%v, %v)", ok, err)
	}
}

// TestKilledResize kills an offline resize2fs at every call with which it changes something, as the end
// of its container does. The next stage repairs, grows, and every byte is there.
func TestKilledResize(t *testing.T) {
	traced(t)
	count := filepath.Join(t.TempDir(), "count")
	t.Setenv(killerCount, count)
	f, calls, refused := newFilled(t), 0, 0
	for at := 1; ; at++ {
		if err := os.Remove(count); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		m, dev, req, err := f.grown(t, at)
		if err == nil { // nobody was killed; one call more or less is a second of the superblock's times that went by
			if calls = numberIn(t, count); calls < 20 || calls >= at {
				t.Fatalf("resize2fs made %d changing calls and was to be killed at call %d: are they seen?", calls, at)
			}
			f.whole(t, m, dev, req)
			break
		}
		if err := m.check(t.Context(), dev.file, false); errors.Is(err, errUncorrected) {
			refused++
		}
		again(t, m, dev, req)
		f.whole(t, m, dev, req)
		dev.detach()
	}
	t.Logf("killed at each of %d calls; e2fsck -p gave up after %d of them", calls, refused)
	if refused < 5 {
		t.Errorf("e2fsck -p gave up only %d times: this test shows nothing", refused)
	}
}

// again is what a stage does.
func again(t *testing.T, m *Mounter, dev *loopDevice, req MountRequest) {
	t.Helper()
	if fs, err := m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4}); fs != Ext4 || err != nil {
		t.Errorf("EnsureFormatted after the kill = %q, %v", fs, err)
	}
	if err := m.MountDevice(t.Context(), dev, req); err != nil {
		t.Fatalf("MountDevice after the kill = %v", err)
	}
}

// TestDamageWithoutANoteIsLeftAlone: what resize2fs leaves when it is killed is repaired only if the
// device says that this is what happened, to this filesystem.
func TestDamageWithoutANoteIsLeftAlone(t *testing.T) {
	traced(t)
	f := newFilled(t)
	for name, note := range map[string][]byte{
		"no note":                              make([]byte, resizeSector),
		"the note of another filesystem":       encodeResizeNote(uuid{1, 2, 3}),
		"a damaged note":                       append([]byte(resizeMagic), bytes.Repeat([]byte{0}, resizeSector-len(resizeMagic))...),
		"a boot loader in the place of a note": bytes.Repeat([]byte{0xeb}, resizeSector),
	} {
		t.Run(name, func(t *testing.T) {
			const inTheMiddle = 20
			m, dev, req := f.halfGrown(t, inTheMiddle)
			if _, ok, err := readResizeNote(dev.file); !ok || err != nil {
				t.Fatalf("readResizeNote after the kill = %v, %v, want one", ok, err)
			}
			dev.put(resizeAt, string(note))
			before := dev.sum()
			_, err := m.EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4})
			onlyLooked := err != nil
			if !onlyLooked {
				err = m.MountDevice(t.Context(), dev, req)
			}
			if !errors.Is(err, fault.Precondition) {
				t.Errorf("stage = %v, want %v", err, fault.Precondition)
			}
			if now := make([]byte, resizeSector); readFull(dev.file, now, resizeAt) != nil || !bytes.Equal(now, note) {
				t.Errorf("the boot sector has changed: %.40q", now)
			}
			// Random bytes of the superblock decide which call is the 20th: after some, its checksum fits and
			// e2fsck -p is the one that refuses. It says so in the superblock, so ask it again.
			if onlyLooked && name == "no note" && dev.sum() != before {
				t.Error("the refused stage changed the device")
			}
			if err := m.check(t.Context(), dev.file, false); !errors.Is(err, errUncorrected) {
				t.Errorf("e2fsck after the refused stage = %v, want the damage still there", err)
			}
		})
	}
}

// failing runs real commands, but resize2fs ends with an error.
type failing struct{}

func (failing) Run(ctx context.Context, cmd Command) (Output, error) {
	switch cmd.Name {
	case "resize2fs", "xfs_growfs", "btrfs":
		return Output{ExitCode: 1, Stderr: []byte(cmd.Name + ": Input/output error")}, nil
	}
	return commands{}.Run(ctx, cmd)
}

// A resize2fs that gives up by itself may have met a bad disk: that is for somebody to look at.
func TestFailedResizeLeavesNoNote(t *testing.T) {
	traced(t)
	const first = 1
	f := newFilled(t)
	m, dev, req := f.halfGrown(t, first)
	again := New(Config{Runner: failing{}})
	again.growsOnline = m.growsOnline
	if err := again.MountDevice(t.Context(), dev, req); !errors.Is(err, fault.Precondition) {
		t.Errorf("MountDevice = %v, want %v", err, fault.Precondition)
	}
	if _, ok, err := readResizeNote(dev.file); ok || err != nil {
		t.Errorf("readResizeNote = %v, %v, want none", ok, err)
	}
	if err := m.MountDevice(t.Context(), dev, req); err != nil {
		t.Fatal(err)
	}
	f.whole(t, m, dev, req)
}
