//go:build e2e

package mounter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

// A bad disk is a loop device over a file of a FUSE filesystem in which one byte cannot be read or written. A process
// of its own serves that filesystem: a test that is killed in the middle of a read could not serve it any more, and
// a loop device that waits for a dead server blocks every program that lists loop devices. The server outlives the
// test by as long as it takes to free everything.

const (
	// badDiskDir makes the test binary the server of the bad disk in this folder, which has the files
	// back (the content) and bad (the offsets of the bytes that cannot be read and written, -1 for none).
	badDiskDir = "MOUNTER_BAD_DISK_DIR"
	serving    = "serving\n"
)

// badDisk is what a test holds of a bad disk.
type badDisk struct {
	t    *testing.T
	back *os.File
	bad  *os.File
}

func newBadDisk(t *testing.T, size int64) (badDisk, *loopDevice) {
	t.Helper()
	dir := t.TempDir()
	back, err1 := os.Create(filepath.Join(dir, "back"))
	bad, err2 := os.Create(filepath.Join(dir, "bad"))
	noError(t, errors.Join(err1, err2, os.Mkdir(filepath.Join(dir, "mnt"), 0o755), back.Truncate(size)))
	d := badDisk{t, back, bad}
	d.unreadable(-1)
	d.unwritable(-1)
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), badDiskDir+"="+dir)
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the keyboard is for the test
	life, err1 := server.StdinPipe()
	says, err2 := server.StdoutPipe()
	noError(t, errors.Join(err1, err2, server.Start()))
	t.Cleanup(func() {
		_ = life.Close() // the server frees everything and ends
		if err := errors.Join(server.Wait(), back.Close(), bad.Close()); err != nil {
			t.Error(err)
		}
	})
	if said, err := io.ReadAll(io.LimitReader(says, int64(len(serving)))); string(said) != serving {
		t.Fatalf("the server of the bad disk says %q, %v", said, err)
	}
	return d, attach(t, filepath.Join(dir, "mnt", "disk"))
}

// unreadable makes the byte at an offset fail to be read; -1: none.
func (d badDisk) unreadable(at int64) { d.set(0, at) }

// unwritable makes the byte at an offset fail to be written; -1: none.
func (d badDisk) unwritable(at int64) { d.set(8, at) }

func (d badDisk) set(where, at int64) {
	d.t.Helper()
	if _, err := d.bad.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(at)), where); err != nil {
		d.t.Fatal(err)
	}
}

// wipe makes the disk blank again.
func (d badDisk) wipe(size int64) {
	d.t.Helper()
	noError(d.t, errors.Join(d.back.Truncate(0), d.back.Truncate(size)))
}

// badFile is the file as its server sees it.
type badFile struct {
	fs.Inode
	back, bad *os.File
}

// spoilt says whether the byte that cannot be read (0) or written (8) is in a range.
func (b *badFile) spoilt(where, at int64, length int) bool {
	buf := make([]byte, 8)
	if _, err := b.bad.ReadAt(buf, where); err != nil {
		return true
	}
	bad := int64(binary.LittleEndian.Uint64(buf))
	return bad >= at && bad < at+int64(length)
}

func (b *badFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := b.back.Stat()
	if err != nil {
		return syscall.EIO
	}
	out.Mode, out.Size = fuse.S_IFREG|0o600, uint64(info.Size())
	return fs.OK
}

func (b *badFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, fs.OK
}

func (b *badFile) Read(_ context.Context, _ fs.FileHandle, dest []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	if b.spoilt(0, at, len(dest)) {
		return nil, syscall.EIO
	}
	n, err := b.back.ReadAt(dest, at)
	if n == 0 && err != nil {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:n]), fs.OK
}

func (b *badFile) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	if b.spoilt(8, at, len(data)) {
		return 0, syscall.EIO
	}
	n, err := b.back.WriteAt(data, at)
	if err != nil {
		return 0, syscall.EIO
	}
	return uint32(n), fs.OK
}

func (b *badFile) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return fs.OK }

// serveBadDisk is the server. It ends when its test has ended, however it did, and frees what the test held.
func serveBadDisk(dir string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	back, err1 := os.OpenFile(filepath.Join(dir, "back"), os.O_RDWR, 0)
	bad, err2 := os.Open(filepath.Join(dir, "bad"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	root, mnt := &fs.Inode{}, filepath.Join(dir, "mnt")
	_, err := fs.Mount(mnt, root, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true},
		OnAdd: func(ctx context.Context) {
			root.AddChild("disk", root.NewPersistentInode(ctx, &badFile{back: back, bad: bad}, fs.StableAttr{Mode: fuse.S_IFREG}), true)
		},
	})
	if err != nil {
		return err
	}
	fmt.Print(serving)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	// Still serving, so that no read below waits for ever. The end of this process ends the connection.
	for _, loop := range loops.Below(mnt) {
		err = errors.Join(err, loops.Detach(loop))
	}
	return errors.Join(err, unix.Unmount(mnt, unix.MNT_DETACH))
}
