package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool"
	"github.com/cloudblock-csi/cloudblock-csi/internal/pool/extents"
)

// disk makes the changes on the filesystem, one durable step at a time.
type disk struct {
	// before is called with the name of each change before it is made; tests end the process there.
	before func(step string)
	// statfs reads the sizes of the filesystem; tests simulate a small one.
	statfs func(dir string) (space, error)
}

func (d disk) step(name string) {
	if d.before != nil {
		d.before(name)
	}
}

// makeFolder makes a folder that does not exist yet, for this user only.
func (d disk) makeFolder(dir string) error {
	if st, err := os.Lstat(dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("%s is not a folder", dir)
		}
		return nil
	}
	d.step("make folder")
	if err := os.Mkdir(dir, folderPerm); err != nil {
		return err
	}
	return d.syncFolder(filepath.Dir(dir))
}

// replace writes a file atomically: after a power loss it has either the old or the new content. The
// content is durable before the rename (else the file could be empty), and the rename is durable before
// replace returns (else a power loss could keep a later step and lose this one).
func (d disk) replace(name string, data []byte) error {
	tmp := name + newExt
	d.step("write new file")
	if err := d.writeNew(tmp, data); err != nil {
		d.discard(tmp)
		return err
	}
	if err := d.rename(tmp, name); err != nil {
		d.discard(tmp)
		return err
	}
	return nil
}

func (d disk) writeNew(tmp string, data []byte) error {
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, filePerm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		d.step("sync new file")
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// discard removes a temporary file. If that fails, the next recover removes it.
func (d disk) discard(tmp string) { _ = os.Remove(tmp) }

// remove removes a file durably. A missing file is no error.
func (d disk) remove(name string) error {
	d.step("remove " + filepath.Ext(name))
	if err := os.Remove(name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	d.step("sync folder")
	return d.syncFolder(filepath.Dir(name))
}

// removeImage is remove for a file that may be large. It truncates the file after it has unlinked it, because xfs frees the
// space of an unlinked file later in the background, and the next create needs it now.
func (d disk) removeImage(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := d.remove(name); err != nil {
		return err
	}
	// A hard link to the image is a deliberate copy: only a file without a link is truncated.
	var st unix.Stat_t
	if err := pool.RetryEINTR(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil || st.Nlink > 0 {
		return nil
	}
	d.step("empty image")
	// The kernel empties it at the close anyway, so a refusal only delays that.
	_ = pool.RetryEINTR(func() error { return f.Truncate(0) })
	return nil
}

// rename gives a file of the pool another name in the same folder, durably. It takes no space but
// where the folder itself has to grow.
func (d disk) rename(from, to string) error {
	d.step("rename")
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d.step("sync folder")
	return d.syncFolder(filepath.Dir(to))
}

func (d disk) syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// createImage makes the file of a new volume, reserved in full, and durable.
func (d disk) createImage(ctx context.Context, name string, size int64) error {
	f, err := d.emptyImage(name)
	if err != nil {
		return err
	}
	return errors.Join(d.reserve(ctx, f, size), f.Close())
}

// emptyImage makes the file of a new volume or snapshot and opens it.
func (d disk) emptyImage(name string) (*os.File, error) {
	d.step("create image")
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, filePerm)
}

// reserveChunk is how much is reserved between two checks of the context.
const reserveChunk int64 = 1 << 30

// reserve allocates every byte of the file below size, makes the file at least that long, and makes both
// durable: before the sync the reservation is only in memory.
func (d disk) reserve(ctx context.Context, f *os.File, size int64) error {
	if err := d.fill(ctx, f, size); err != nil {
		return err
	}
	d.step("sync image")
	return f.Sync()
}

// fill is reserve without the sync. It allocates only holes: on a full disk xfs refuses even a range that
// is allocated already.
func (d disk) fill(ctx context.Context, f *os.File, size int64) error {
	err := extents.EachHole(f, size, func(hole extents.Range) error {
		for end := hole.Start + hole.Length; hole.Start < end; hole.Start += reserveChunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			d.step("reserve")
			length := min(reserveChunk, end-hole.Start)
			if err := pool.RetryEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, hole.Start, length) }); err != nil {
				return fmt.Errorf("reserve %d bytes of %s: %w", length, f.Name(), err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill the holes in %s: %w", f.Name(), err)
	}
	return d.lengthen(f, size)
}

// lengthen extends the file to size. fallocate has done so already, unless a power loss kept the
// allocation and lost the new length.
func (d disk) lengthen(f *os.File, size int64) error {
	st, err := f.Stat()
	if err != nil || st.Size() >= size {
		return err
	}
	d.step("lengthen image")
	return pool.RetryEINTR(func() error { return f.Truncate(size) })
}

// truncate cuts an image back to size after a growth that did not fit.
func (d disk) truncate(f *os.File, size int64) error {
	d.step("truncate image")
	if err := pool.RetryEINTR(func() error { return f.Truncate(size) }); err != nil {
		return err
	}
	d.step("sync image")
	return f.Sync()
}

// probe refuses a filesystem that cannot reserve space. Some report success without
// an allocation (ZFS), so it counts the blocks. A full filesystem passes: its volumes exist already.
func (d disk) probe(name string) error {
	d.discard(name)
	defer d.discard(name)
	err := d.createImage(context.Background(), name, pool.SizeStep)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("this filesystem cannot reserve space for a file (fallocate); use ext4 or xfs: %w: %w", fault.PoolUnusable, err)
	case err != nil:
		return pool.KindOf(err)
	}
	_, allocated, err := sizes(name)
	if err != nil {
		return pool.KindOf(err)
	}
	if allocated < pool.SizeStep {
		return fmt.Errorf("this filesystem reports that it reserves space for a file but does not (%d of %d bytes); use ext4 or xfs: %w",
			allocated, pool.SizeStep, fault.Precondition)
	}
	return nil
}

// sizes returns the length of a regular file and how many bytes of it are allocated.
func sizes(name string) (size, allocated int64, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, 0, fmt.Errorf("%s is not a regular file", name)
	}
	return st.Size, st.Blocks * 512, nil
}
