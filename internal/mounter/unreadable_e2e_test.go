//go:build e2e

package mounter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// badFile is a file of a FUSE filesystem in which one byte cannot be read or written.
type badFile struct {
	fs.Inode
	file                *os.File
	size                int64
	badRead, badWritten atomic.Int64
}

func (b *badFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode, out.Size = fuse.S_IFREG|0o600, uint64(b.size)
	return fs.OK
}

func (b *badFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, fs.OK
}

func (b *badFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	if bad := b.badRead.Load(); bad >= at && bad < at+int64(len(dest)) {
		return nil, syscall.EIO
	}
	n, err := b.file.ReadAt(dest, at)
	if n == 0 && err != nil {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n]), fs.OK
}

func (b *badFile) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	if bad := b.badWritten.Load(); bad >= at && bad < at+int64(len(data)) {
		return 0, syscall.EIO
	}
	n, err := b.file.WriteAt(data, at)
	if err != nil {
		return 0, syscall.EIO
	}
	return uint32(n), fs.OK
}

func (b *badFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return fs.OK }

// badDisk is a loop device over such a file.
func badDisk(t *testing.T, size int64) (*badFile, *loopDevice) {
	t.Helper()
	dir := t.TempDir()
	back, err := os.Create(filepath.Join(dir, "back"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = back.Close() })
	if err := back.Truncate(size); err != nil {
		t.Fatal(err)
	}
	bad := &badFile{file: back, size: size}
	bad.badRead.Store(-1)
	bad.badWritten.Store(-1)
	root := &fs.Inode{}
	mnt := filepath.Join(dir, "mnt")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	server, err := fs.Mount(mnt, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("disk", root.NewPersistentInode(ctx, bad, fs.StableAttr{Mode: fuse.S_IFREG}), true)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return bad, attach(t, filepath.Join(mnt, "disk"))
}

// TestUnreadableDiskIsNeverFormatted is F1: wherever one read fails, there is an error and no mkfs.
func TestUnreadableDiskIsNeverFormatted(t *testing.T) {
	const size = 320 * mib
	programs := countMkfs(t)
	bad, dev := badDisk(t, size)
	m := New(Config{})
	req := FormatRequest{Volume: "v1", Filesystem: Ext4, BlankCreated: true, FormatNonZero: true}

	refused := func(what string, at int64) {
		t.Helper()
		if fs, err := m.EnsureFormatted(t.Context(), dev, req); err == nil {
			t.Errorf("EnsureFormatted(%s, byte %d unreadable) = %s, want an error", what, at, fs)
		}
		if n := programs.runs(); n > 0 {
			t.Fatalf("mkfs ran %d times on a disk (%s) with byte %d unreadable", n, what, at)
		}
	}
	offsets := map[int64]bool{0: true, size - 1: true, size / 2 &^ 4095: false}
	for _, e := range probeExtents(size) {
		offsets[e.from], offsets[e.to-1] = true, true
	}
	for at, probed := range offsets {
		if probed {
			bad.badRead.Store(at)
			refused("blank", at)
		}
	}
	bad.badRead.Store(-1)
	for _, at := range places(size) {
		bad.badWritten.Store(at)
		refused("blank, unwritable", at)
		bad.badWritten.Store(-1)
		wipe(t, bad.file, size) // copies before the bad one were written
	}

	// A healthy ext4 whose superblock cannot be read looks empty to blkid.
	must(t, "/sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard", dev.Path())
	for _, at := range []int64{0, 1024, 1080, 64 * kib} {
		bad.badRead.Store(at)
		refused("ext4", at)
	}
	bad.badRead.Store(-1)
	if fs, err := m.EnsureFormatted(t.Context(), dev, req); fs != Ext4 || err != nil {
		t.Errorf("EnsureFormatted(ext4 that can be read again) = %q, %v, want ext4", fs, err)
	}

	// The same disk without a fault is formatted: the refusals above were not for another reason.
	wipe(t, bad.file, size)
	if _, err := m.EnsureFormatted(t.Context(), dev, req); err != nil || programs.runs() != 1 {
		t.Errorf("EnsureFormatted(blank, readable) = %v with %d mkfs, want one", err, programs.runs())
	}
}

// wipe makes a backing file blank again.
func wipe(t *testing.T, f *os.File, size int64) {
	t.Helper()
	if err := errors.Join(f.Truncate(0), f.Truncate(size)); err != nil {
		t.Fatal(err)
	}
}

// TestBlkidThatFailsIsNotAnAnswer covers the other half of F1: our own read is fine and blkid is not.
func TestBlkidThatFailsIsNotAnAnswer(t *testing.T) {
	dev, programs := newLoop(t, small), countMkfs(t)
	for name, script := range map[string]string{
		"blkid cannot read": "#!/bin/sh\nexit 4\n", "blkid is torn": "#!/bin/sh\nexit 8\n", "blkid dies": "#!/bin/sh\nkill -9 $$\n",
		"blkid sees what we do not": "#!/bin/sh\necho TYPE=zfs_member\n", "blkid mumbles": "#!/bin/sh\necho DEVNAME=x\n",
		"blkid sees our filesystem and we do not": "#!/bin/sh\necho TYPE=ext4\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "blkid"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			_, err := New(Config{}).EnsureFormatted(t.Context(), dev, FormatRequest{Volume: "v1", Filesystem: Ext4})
			if !errors.Is(err, fault.Precondition) && !errors.Is(err, fault.Unavailable) || programs.runs() > 0 {
				t.Errorf("EnsureFormatted = %v with %d mkfs, want a refusal and none", err, programs.runs())
			}
		})
	}
}
